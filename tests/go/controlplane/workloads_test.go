package controlplane

import (
	"context"
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

const revisionAnnotation = "deployment.kubernetes.io/revision"

// testDeployment shows a rollout, a second rollout, a rollback to the first revision, and scaling.
func testDeployment(s *scenario) {
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, newDeployment("web", 5))
	s.deploymentIsComplete("web", 5, "1")
	first := s.replicaSetOfRevision("web", "1")

	s.updateDeployment("web", func(d *apps.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "image:2" })
	s.deploymentIsComplete("web", 5, "2")
	if second := s.replicaSetOfRevision("web", "2"); second.UID == first.UID {
		s.Errorf("the new template is in the old replica set %s", second.Name)
	}

	// What `kubectl rollout undo` does: the template of the old revision, without the label that the controller adds.
	s.updateDeployment("web", func(d *apps.Deployment) {
		d.Spec.Template = *first.Spec.Template.DeepCopy()
		delete(d.Spec.Template.Labels, apps.DefaultDeploymentUniqueLabelKey)
	})
	s.deploymentIsComplete("web", 5, "3")
	if third := s.replicaSetOfRevision("web", "3"); third.UID != first.UID {
		s.Errorf("the rollback is in %s instead of the first replica set %s", third.Name, first.Name)
	}

	for _, replicas := range []int32{8, 2} {
		s.scaleDeployment("web", replicas)
		s.deploymentIsComplete("web", replicas, "3")
	}
	s.podsExist("app=web", 2)
}

// deploymentIsComplete waits for the state in which `kubectl rollout status` ends, at a revision.
func (s *scenario) deploymentIsComplete(name string, replicas int32, revision string) {
	s.Helper()
	s.eventually("deployment "+name+" is complete", convergeTimeout, func(ctx context.Context) error {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := d.Status
		if status.ObservedGeneration < d.Generation || status.Replicas != replicas || status.UpdatedReplicas != replicas ||
			status.AvailableReplicas != replicas || d.Annotations[revisionAnnotation] != revision {
			return fmt.Errorf("generation %d, revision %q, status %+v", d.Generation, d.Annotations[revisionAnnotation], status)
		}
		return nil
	})
}

func (s *scenario) replicaSetOfRevision(deployment, revision string) *apps.ReplicaSet {
	s.Helper()
	sets := must(s.client.AppsV1().ReplicaSets(s.namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment}))(s.T)
	for index, set := range sets.Items {
		if set.Annotations[revisionAnnotation] == revision {
			return &sets.Items[index]
		}
	}
	s.Fatalf("no replica set of %s has revision %s", deployment, revision)
	return nil
}

// conflictBackoff has more tries than those of client-go: controllers change the same objects.
var conflictBackoff = wait.Backoff{Steps: 20, Duration: 100 * time.Millisecond, Factor: 1, Jitter: 0.1}

func (s *scenario) updateDeployment(name string, change func(*apps.Deployment)) {
	s.Helper()
	deployments := s.client.AppsV1().Deployments(s.namespace)
	err := retry.RetryOnConflict(conflictBackoff, func() error {
		d, err := deployments.Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(d)
		_, err = deployments.Update(s.Context(), d, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		s.Fatalf("update deployment %s: %v", name, err)
	}
}

// scaleDeployment sets the replicas through the scale subresource.
func (s *scenario) scaleDeployment(name string, replicas int32) {
	s.Helper()
	deployments := s.client.AppsV1().Deployments(s.namespace)
	err := retry.RetryOnConflict(conflictBackoff, func() error {
		scale, err := deployments.GetScale(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		_, err = deployments.UpdateScale(s.Context(), name, scale, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		s.Fatalf("scale deployment %s: %v", name, err)
	}
}

// podsExist waits until exactly so many pods match a label selector, and returns them.
func (s *scenario) podsExist(selector string, count int) []core.Pod {
	s.Helper()
	var pods []core.Pod
	s.eventually(fmt.Sprintf("%d pods %s exist", count, selector), convergeTimeout, func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil && len(list.Items) != count {
			err = fmt.Errorf("%d pods", len(list.Items))
		}
		if err == nil {
			pods = list.Items
		}
		return err
	})
	return pods
}

// testJob shows an indexed job that completes, one that fails, one that starts suspended, and clean-up by TTL.
func testJob(s *scenario) {
	jobs := s.client.BatchV1().Jobs(s.namespace)
	indexed := newJob("indexed", "0")
	indexed.Spec.CompletionMode = ptr.To(batch.IndexedCompletion)
	indexed.Spec.Completions, indexed.Spec.Parallelism = ptr.To[int32](6), ptr.To[int32](3)
	create(s, jobs.Create, indexed)
	failing := newJob("failing", "1")
	failing.Spec.BackoffLimit = ptr.To[int32](0)
	create(s, jobs.Create, failing)
	suspended := newJob("suspended", "0")
	suspended.Spec.Suspend = ptr.To(true)
	suspended.Spec.TTLSecondsAfterFinished = ptr.To[int32](0)
	create(s, jobs.Create, suspended)

	job := s.jobHasCondition("indexed", batch.JobComplete)
	if job.Status.Succeeded != 6 || job.Status.CompletedIndexes != "0-5" {
		s.Errorf("status of the indexed job: %+v", job.Status)
	}
	s.jobHasCondition("failing", batch.JobFailed)
	s.jobHasCondition("suspended", batch.JobSuspended)
	must(jobs.Patch(s.Context(), "suspended", "application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}))(s.T)
	s.eventually("the finished job is removed", convergeTimeout, func(ctx context.Context) error {
		_, err := jobs.Get(ctx, "suspended", metav1.GetOptions{})
		return expectNotFound(err)
	})
	for _, pod := range s.podsExist("batch.kubernetes.io/job-name=indexed", 6) {
		if len(pod.Finalizers) != 0 {
			s.Errorf("pod %s of the complete job has finalizers %v", pod.Name, pod.Finalizers)
		}
	}
}

func (s *scenario) jobHasCondition(name string, condition batch.JobConditionType) *batch.Job {
	s.Helper()
	var found *batch.Job
	s.eventually(fmt.Sprintf("job %s is %s", name, condition), convergeTimeout, func(ctx context.Context) error {
		job, err := s.client.BatchV1().Jobs(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range job.Status.Conditions {
			if c.Type == condition && c.Status == core.ConditionTrue {
				found = job
				return nil
			}
		}
		return fmt.Errorf("status %+v", job.Status)
	})
	return found
}

// testCronJob shows a job that is made at the next full minute.
func testCronJob(s *scenario) {
	job := newJob("tick", "0")
	create(s, s.client.BatchV1().CronJobs(s.namespace).Create, &batch.CronJob{ObjectMeta: named("tick"), Spec: batch.CronJobSpec{
		Schedule: "* * * * *", JobTemplate: batch.JobTemplateSpec{Spec: job.Spec},
	}})
	s.eventually("the cron job has run", time.Minute+convergeTimeout, func(ctx context.Context) error {
		cronJob, err := s.client.BatchV1().CronJobs(s.namespace).Get(ctx, "tick", metav1.GetOptions{})
		if err == nil && (cronJob.Status.LastScheduleTime == nil || cronJob.Status.LastSuccessfulTime == nil) {
			err = fmt.Errorf("status %+v", cronJob.Status)
		}
		return err
	})
}

// testStatefulSet shows claims that are bound to volumes, a rolling update in order, and claims that are deleted
// with the set.
func testStatefulSet(s *scenario) {
	class := s.namespace
	s.makeVolumes(class, 3)
	template := podTemplate("db", "image:1")
	template.Spec.Containers[0].VolumeMounts = []core.VolumeMount{{Name: "data", MountPath: "/data"}}
	claim := core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: core.PersistentVolumeClaimSpec{
		AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce}, StorageClassName: &class,
		Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	sets := s.client.AppsV1().StatefulSets(s.namespace)
	create(s, sets.Create, &apps.StatefulSet{ObjectMeta: named("db"), Spec: apps.StatefulSetSpec{
		Replicas: ptr.To[int32](3), Selector: selecting("db"), ServiceName: "db", Template: template,
		VolumeClaimTemplates: []core.PersistentVolumeClaim{claim},
		PersistentVolumeClaimRetentionPolicy: &apps.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: apps.DeletePersistentVolumeClaimRetentionPolicyType,
		},
	}})
	s.statefulSetIsComplete("db", 3)
	claims := must(s.client.CoreV1().PersistentVolumeClaims(s.namespace).List(s.Context(), metav1.ListOptions{}))(s.T)
	if len(claims.Items) != 3 {
		s.Errorf("%d claims instead of 3", len(claims.Items))
	}
	for _, claim := range claims.Items {
		if claim.Status.Phase != core.ClaimBound {
			s.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
		}
	}

	must(sets.Patch(s.Context(), "db", "application/strategic-merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"image:2"}]}}}}`), metav1.PatchOptions{}))(s.T)
	s.statefulSetIsComplete("db", 3)
	for _, pod := range s.podsExist("app=db", 3) {
		if image := pod.Spec.Containers[0].Image; image != "image:2" {
			s.Errorf("pod %s has image %s after the update", pod.Name, image)
		}
	}

	if err := sets.Delete(s.Context(), "db", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.eventually("the claims are deleted and the volumes released", convergeTimeout, func(ctx context.Context) error {
		claims, err := s.client.CoreV1().PersistentVolumeClaims(s.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(claims.Items) != 0 {
			err = fmt.Errorf("%d claims", len(claims.Items))
		}
		return err
	})
	s.eventually("the volumes are released", convergeTimeout, func(ctx context.Context) error {
		volumes, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: "class=" + class})
		if err != nil {
			return err
		}
		for _, volume := range volumes.Items {
			if volume.Status.Phase != core.VolumeReleased {
				return fmt.Errorf("volume %s is %s", volume.Name, volume.Status.Phase)
			}
		}
		return nil
	})
}

// makeVolumes creates volumes of a class that nothing provisions.
func (s *scenario) makeVolumes(class string, count int) {
	s.Helper()
	for index := range count {
		volume := &core.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", class, index), Labels: map[string]string{"class": class}},
			Spec: core.PersistentVolumeSpec{
				Capacity:               core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes:            []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
				StorageClassName:       class,
				PersistentVolumeSource: core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: "/tmp/none"}},
			},
		}
		create(s, s.client.CoreV1().PersistentVolumes().Create, volume)
		s.Cleanup(func() {
			err := s.client.CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{})
			if err != nil {
				s.Errorf("delete volume %s: %v", volume.Name, err)
			}
		})
	}
}

func (s *scenario) statefulSetIsComplete(name string, replicas int32) {
	s.Helper()
	s.eventually("stateful set "+name+" is complete", convergeTimeout, func(ctx context.Context) error {
		set, err := s.client.AppsV1().StatefulSets(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := set.Status
		if status.ObservedGeneration < set.Generation || status.ReadyReplicas != replicas || status.UpdatedReplicas != replicas ||
			status.CurrentRevision != status.UpdateRevision {
			return fmt.Errorf("generation %d, status %+v", set.Generation, status)
		}
		return nil
	})
}

// testDaemonSet shows a pod on each selected node, also on one that joins later.
func testDaemonSet(s *scenario) {
	key := s.reservedNodes(3)
	template := podTemplate("agent", "image:1")
	useReserved(&template.Spec, key)
	create(s, s.client.AppsV1().DaemonSets(s.namespace).Create, &apps.DaemonSet{ObjectMeta: named("agent"), Spec: apps.DaemonSetSpec{
		Selector: selecting("agent"), Template: template,
	}})
	s.daemonSetIsReady("agent", 3)
	s.kubelet.addNode(s.T, s.namespace+"-3", key)
	s.daemonSetIsReady("agent", 4)
	nodes := map[string]bool{}
	for _, pod := range s.podsExist("app=agent", 4) {
		nodes[pod.Spec.NodeName] = true
	}
	if len(nodes) != 4 {
		s.Errorf("the pods are on the nodes %v", nodes)
	}
}

// reservedNodes adds nodes that only pods with useReserved use, and returns the key for it.
func (s *scenario) reservedNodes(count int) string {
	s.Helper()
	key := "test.watchet/" + s.namespace
	for index := range count {
		s.kubelet.addNode(s.T, fmt.Sprintf("%s-%d", s.namespace, index), key)
	}
	return key
}

// useReserved binds a pod to the nodes that are reserved by a key.
func useReserved(spec *core.PodSpec, key string) {
	spec.NodeSelector = map[string]string{key: "true"}
	spec.Tolerations = append(spec.Tolerations, core.Toleration{Key: key, Operator: core.TolerationOpExists})
}

func (s *scenario) daemonSetIsReady(name string, nodes int32) {
	s.Helper()
	s.eventually(fmt.Sprintf("daemon set %s is ready on %d nodes", name, nodes), convergeTimeout, func(ctx context.Context) error {
		set, err := s.client.AppsV1().DaemonSets(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (set.Status.DesiredNumberScheduled != nodes || set.Status.NumberAvailable != nodes) {
			err = fmt.Errorf("status %+v", set.Status)
		}
		return err
	})
}

// expectNotFound turns the error of a get into that of a check that the object does not exist.
func expectNotFound(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return fmt.Errorf("it still exists")
	default:
		return err
	}
}
