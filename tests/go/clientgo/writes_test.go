// Writes: retry on conflict, server-side apply with apply configurations, subresources, scale and evictions.
package clientgo

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	applyappsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/retry"
)

func TestWrites(t *testing.T) {
	runCases(t, []testCase{
		{"RetryOnConflict", retryOnConflict},
		{"ApplyAndExtract", applyAndExtract},
		{"ApplyStatus", applyStatus},
		{"Status", statusSubresource},
		{"Resize", resizeSubresource},
		{"EphemeralContainers", ephemeralContainers},
		{"Binding", bindingSubresource},
		{"ScaleSubresource", scaleSubresource},
		{"ScaleClient", scaleClient},
		{"Eviction", eviction},
		{"ServerSideFields", serverSideFields},
		{"DeleteCollection", deleteCollection},
		{"GracefulDeletion", gracefulDeletion},
	})
}

// retryOnConflict has eight writers increment a counter ten times each.
func retryOnConflict(t *testing.T, c *cluster) {
	const writers, increments = 8, 10
	c.createConfigMap(t, "counter", "0")
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	backoff := wait.Backoff{Steps: 1000, Duration: time.Millisecond, Factor: 1, Jitter: 1}
	increment := func() error {
		object, err := configMaps.Get(c.ctx, "counter", metav1.GetOptions{})
		if err != nil {
			return err
		}
		value, err := strconv.Atoi(object.Data["value"])
		if err != nil {
			return err
		}
		object.Data["value"] = strconv.Itoa(value + 1)
		_, err = configMaps.Update(c.ctx, object, metav1.UpdateOptions{})
		return err
	}
	failures := make([]error, writers)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for range increments {
				if failures[i] = retry.RetryOnConflict(backoff, increment); failures[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	must(t, errors.Join(failures...))
	object, err := configMaps.Get(c.ctx, "counter", metav1.GetOptions{})
	must(t, err)
	if object.Data["value"] != strconv.Itoa(writers*increments) {
		t.Errorf("the counter is %s after %d increments", object.Data["value"], writers*increments)
	}
}

// applyAndExtract applies a deployment, has another manager scale it, and extracts what the first one owns.
func applyAndExtract(t *testing.T, c *cluster) {
	const manager = "applier"
	deployments := c.client.AppsV1().Deployments(c.namespace)
	labels := map[string]string{"app": "web"}
	container := applycorev1.Container().WithName("web").WithImage("nginx:1").
		WithEnv(applycorev1.EnvVar().WithName("MODE").WithValue("test"))
	configuration := applyappsv1.Deployment("web", c.namespace).WithLabels(labels).
		WithSpec(applyappsv1.DeploymentSpec().WithReplicas(2).
			WithSelector(applymetav1.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(applycorev1.PodTemplateSpec().WithLabels(labels).
				WithSpec(applycorev1.PodSpec().WithContainers(container))))
	created, err := deployments.Apply(c.ctx, configuration, metav1.ApplyOptions{FieldManager: manager})
	must(t, err)
	again, err := deployments.Apply(c.ctx, configuration, metav1.ApplyOptions{FieldManager: manager})
	must(t, err)
	if again.ResourceVersion != created.ResourceVersion {
		t.Errorf("an apply without a change made version %s of %s", again.ResourceVersion, created.ResourceVersion)
	}
	_, err = deployments.Patch(c.ctx, "web", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"by":"other"}},"spec":{"replicas":5}}`), metav1.PatchOptions{FieldManager: "scaler"})
	must(t, err)
	current, err := deployments.Get(c.ctx, "web", metav1.GetOptions{})
	must(t, err)
	extracted, err := applyappsv1.ExtractDeployment(current, manager)
	must(t, err)
	if extracted.Spec.Replicas != nil {
		t.Errorf("the applier still owns replicas, which the scaler set: %d", *extracted.Spec.Replicas)
	}
	if extracted.Annotations != nil || len(extracted.Spec.Template.Spec.Containers) != 1 ||
		*extracted.Spec.Template.Spec.Containers[0].Image != "nginx:1" || extracted.Labels["app"] != "web" {
		t.Errorf("extracted %+v", extracted)
	}
	// Extract, change, apply: the environment variable is given up, the image is changed.
	extracted.Spec.Template.Spec.Containers[0].WithImage("nginx:2").Env = nil
	applied, err := deployments.Apply(c.ctx, extracted, metav1.ApplyOptions{FieldManager: manager})
	must(t, err)
	web := applied.Spec.Template.Spec.Containers[0]
	if web.Image != "nginx:2" || len(web.Env) != 0 || *applied.Spec.Replicas != 5 || applied.Annotations["by"] != "other" {
		t.Errorf("applied %+v", applied.Spec)
	}
}

// applyStatus applies the main resource and the status by different managers, and extracts each.
func applyStatus(t *testing.T, c *cluster) {
	pods := c.client.CoreV1().Pods(c.namespace)
	configuration := applycorev1.Pod("a", c.namespace).
		WithSpec(applycorev1.PodSpec().WithContainers(applycorev1.Container().WithName("c").WithImage("i")))
	_, err := pods.Apply(c.ctx, configuration, metav1.ApplyOptions{FieldManager: "spec-manager"})
	must(t, err)
	status := applycorev1.Pod("a", c.namespace).WithStatus(applycorev1.PodStatus().WithPhase(corev1.PodRunning).
		WithConditions(applycorev1.PodCondition().WithType("Example").WithStatus(corev1.ConditionTrue)))
	applied, err := pods.ApplyStatus(c.ctx, status, metav1.ApplyOptions{FieldManager: "status-manager"})
	must(t, err)
	if applied.Status.Phase != corev1.PodRunning || len(applied.Status.Conditions) != 1 {
		t.Errorf("status %+v", applied.Status)
	}
	extracted, err := applycorev1.ExtractPodStatus(applied, "status-manager")
	must(t, err)
	if extracted.Status == nil || len(extracted.Status.Conditions) != 1 || *extracted.Status.Conditions[0].Type != "Example" {
		t.Errorf("extracted status %+v", extracted.Status)
	}
	extracted, err = applycorev1.ExtractPod(applied, "status-manager")
	must(t, err)
	if extracted.Spec != nil || extracted.Status != nil {
		t.Errorf("the status manager owns fields of the main resource: %+v", extracted)
	}
}

func statusSubresource(t *testing.T, c *cluster) {
	deployments := c.client.AppsV1().Deployments(c.namespace)
	created, err := deployments.Create(c.ctx, newDeployment("web", 1), metav1.CreateOptions{})
	must(t, err)
	changed := created.DeepCopy()
	changed.Spec.Replicas = new(int32(7))
	changed.Status.Replicas = 1
	changed.Status.ObservedGeneration = created.Generation
	updated, err := deployments.UpdateStatus(c.ctx, changed, metav1.UpdateOptions{})
	must(t, err)
	if *updated.Spec.Replicas != 1 || updated.Status.Replicas != 1 || updated.Generation != created.Generation {
		t.Errorf("after an update of the status: replicas %d, status %+v, generation %d",
			*updated.Spec.Replicas, updated.Status, updated.Generation)
	}
	updated.Spec.Replicas = new(int32(2))
	updated.Status.Replicas = 9
	updated, err = deployments.Update(c.ctx, updated, metav1.UpdateOptions{})
	must(t, err)
	if *updated.Spec.Replicas != 2 || updated.Status.Replicas != 1 || updated.Generation != created.Generation+1 {
		t.Errorf("after an update: replicas %d, status %+v, generation %d", *updated.Spec.Replicas, updated.Status, updated.Generation)
	}
	patched, err := deployments.Patch(c.ctx, "web", types.MergePatchType, []byte(`{"status":{"replicas":2}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	if patched.Status.Replicas != 2 {
		t.Errorf("after a patch of the status: %+v", patched.Status)
	}
}

func resizeSubresource(t *testing.T, c *cluster) {
	pods := c.client.CoreV1().Pods(c.namespace)
	pod := newPod("a")
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	created, err := pods.Create(c.ctx, pod, metav1.CreateOptions{})
	must(t, err)
	created.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("200m")
	_, err = pods.Update(c.ctx, created, metav1.UpdateOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
	resized, err := pods.UpdateResize(c.ctx, "a", created, metav1.UpdateOptions{})
	must(t, err)
	if cpu := resized.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "200m" {
		t.Errorf("resized to %s", cpu)
	}
	resized.Spec.Containers[0].Image = "other"
	resized, err = pods.UpdateResize(c.ctx, "a", resized, metav1.UpdateOptions{})
	if err == nil && resized.Spec.Containers[0].Image == "other" || err != nil && !apierrors.IsInvalid(err) {
		t.Errorf("resize changed the image, or failed unexpectedly: %v", err)
	}
}

func ephemeralContainers(t *testing.T, c *cluster) {
	pods := c.client.CoreV1().Pods(c.namespace)
	pod, err := pods.Create(c.ctx, newPod("a"), metav1.CreateOptions{})
	must(t, err)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"},
		TargetContainerName:      "c",
	}}
	pod, err = pods.UpdateEphemeralContainers(c.ctx, "a", pod, metav1.UpdateOptions{})
	must(t, err)
	if len(pod.Spec.EphemeralContainers) != 1 || pod.Spec.EphemeralContainers[0].TerminationMessagePath == "" {
		t.Errorf("ephemeral containers %+v", pod.Spec.EphemeralContainers)
	}
	pod.Spec.EphemeralContainers = nil
	_, err = pods.UpdateEphemeralContainers(c.ctx, "a", pod, metav1.UpdateOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
}

func bindingSubresource(t *testing.T, c *cluster) {
	pods := c.client.CoreV1().Pods(c.namespace)
	_, err := pods.Create(c.ctx, newPod("a"), metav1.CreateOptions{})
	must(t, err)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: c.namespace, Annotations: map[string]string{"by": "test"}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node-1"},
	}
	must(t, pods.Bind(c.ctx, binding, metav1.CreateOptions{}))
	pod, err := pods.Get(c.ctx, "a", metav1.GetOptions{})
	must(t, err)
	if pod.Spec.NodeName != "node-1" || pod.Annotations["by"] != "test" ||
		len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Type != corev1.PodScheduled {
		t.Errorf("bound pod: node %q, annotations %v, conditions %v", pod.Spec.NodeName, pod.Annotations, pod.Status.Conditions)
	}
	err = pods.Bind(c.ctx, binding, metav1.CreateOptions{})
	mustBe(t, "Conflict", apierrors.IsConflict, err)
}

func scaleSubresource(t *testing.T, c *cluster) {
	deployments := c.client.AppsV1().Deployments(c.namespace)
	_, err := deployments.Create(c.ctx, newDeployment("web", 1), metav1.CreateOptions{})
	must(t, err)
	current, err := deployments.GetScale(c.ctx, "web", metav1.GetOptions{})
	must(t, err)
	if current.Spec.Replicas != 1 || current.Status.Selector != "app=web" {
		t.Errorf("scale %+v %+v", current.Spec, current.Status)
	}
	stale := current.DeepCopy()
	current.Spec.Replicas = 3
	current, err = deployments.UpdateScale(c.ctx, "web", current, metav1.UpdateOptions{})
	must(t, err)
	if current.Spec.Replicas != 3 {
		t.Errorf("scaled to %d", current.Spec.Replicas)
	}
	_, err = deployments.UpdateScale(c.ctx, "web", stale, metav1.UpdateOptions{})
	mustBe(t, "Conflict", apierrors.IsConflict, err)
	current.Spec.Replicas = -1
	_, err = deployments.UpdateScale(c.ctx, "web", current, metav1.UpdateOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
}

// scaleClient scales through the polymorphic client, which finds the kind of a scale by discovery.
func scaleClient(t *testing.T, c *cluster) {
	_, err := c.client.AppsV1().StatefulSets(c.namespace).Create(c.ctx, newStatefulSet("db"), metav1.CreateOptions{})
	must(t, err)
	cached := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(c.config))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &schema.GroupVersion{}
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached))
	must(t, err)
	statefulSets := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	current, err := scales.Scales(c.namespace).Get(c.ctx, statefulSets, "db", metav1.GetOptions{})
	must(t, err)
	current.Spec.Replicas = 4
	_, err = scales.Scales(c.namespace).Update(c.ctx, statefulSets, current, metav1.UpdateOptions{})
	must(t, err)
	patched, err := scales.Scales(c.namespace).Patch(c.ctx, statefulSets.WithVersion("v1"), "db", types.MergePatchType,
		[]byte(`{"spec":{"replicas":6}}`), metav1.PatchOptions{})
	must(t, err)
	if patched.Spec.Replicas != 6 {
		t.Errorf("patched to %d", patched.Spec.Replicas)
	}
	object, err := c.client.AppsV1().StatefulSets(c.namespace).Get(c.ctx, "db", metav1.GetOptions{})
	must(t, err)
	if *object.Spec.Replicas != 6 {
		t.Errorf("the stateful set has %d replicas", *object.Spec.Replicas)
	}
}

// eviction evicts pods with and without a disruption budget that allows it.
func eviction(t *testing.T, c *cluster) {
	pods := c.client.CoreV1().Pods(c.namespace)
	budgets := c.client.PolicyV1().PodDisruptionBudgets(c.namespace)
	evict := func(name string, options *metav1.DeleteOptions) error {
		return pods.EvictV1(c.ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}, DeleteOptions: options,
		})
	}
	for _, name := range []string{"a", "b"} {
		pod := newPod(name)
		pod.Spec.NodeName = "node-1"
		_, err := pods.Create(c.ctx, pod, metav1.CreateOptions{})
		must(t, err)
		_, err = pods.Patch(c.ctx, name, types.StrategicMergePatchType,
			[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
		must(t, err)
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(2)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	_, err := budgets.Create(c.ctx, budget, metav1.CreateOptions{})
	must(t, err)
	setAllowed := func(allowed int32) {
		t.Helper()
		budget, err := budgets.Get(c.ctx, "web", metav1.GetOptions{})
		must(t, err)
		budget.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: budget.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 2, ExpectedPods: 2,
		}
		_, err = budgets.UpdateStatus(c.ctx, budget, metav1.UpdateOptions{})
		must(t, err)
	}
	setAllowed(0)
	err = evict("a", nil)
	mustBe(t, "TooManyRequests", apierrors.IsTooManyRequests, err)
	checkMessage(t, err, "Cannot evict pod as it would violate the pod's disruption budget.")
	if !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("no cause %s: %v", policyv1.DisruptionBudgetCause, err)
	}
	setAllowed(1)
	mustBe(t, "Conflict", apierrors.IsConflict, evict("a", metav1.NewPreconditionDeleteOptions("another-uid")))
	setAllowed(1)
	must(t, evict("a", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	must(t, evict("a", nil))
	pod, err := pods.Get(c.ctx, "a", metav1.GetOptions{})
	must(t, err)
	if pod.DeletionTimestamp == nil || !hasCondition(pod, corev1.DisruptionTarget) {
		t.Errorf("evicted pod: deleted at %v, conditions %v", pod.DeletionTimestamp, pod.Status.Conditions)
	}
	budget, err = budgets.Get(c.ctx, "web", metav1.GetOptions{})
	must(t, err)
	if _, recorded := budget.Status.DisruptedPods["a"]; !recorded || budget.Status.DisruptionsAllowed != 0 {
		t.Errorf("status of the budget: %+v", budget.Status)
	}
	mustBe(t, "TooManyRequests", apierrors.IsTooManyRequests, evict("b", nil))
	mustBe(t, "NotFound", apierrors.IsNotFound, evict("absent", nil))
}

// serverSideFields checks what the server fills in, and that an update without a change keeps the version.
func serverSideFields(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}, BinaryData: map[string][]byte{"b": {0, 1, 255}}}
	created, err := configMaps.Create(c.ctx, object, metav1.CreateOptions{FieldManager: "maker"})
	must(t, err)
	if len(created.Name) != len("made-")+5 || created.UID == "" || created.CreationTimestamp.IsZero() ||
		len(created.ManagedFields) != 1 || created.ManagedFields[0].Manager != "maker" {
		t.Errorf("created %+v", created.ObjectMeta)
	}
	updated, err := configMaps.Update(c.ctx, created, metav1.UpdateOptions{FieldManager: "maker"})
	must(t, err)
	if updated.ResourceVersion != created.ResourceVersion {
		t.Errorf("an update without a change made version %s of %s", updated.ResourceVersion, created.ResourceVersion)
	}
	if string(updated.BinaryData["b"]) != "\x00\x01\xff" {
		t.Errorf("binary data %v", updated.BinaryData)
	}
	rehearsed, err := configMaps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must(t, err)
	if rehearsed.UID == "" || rehearsed.ResourceVersion != "" {
		t.Errorf("dry run made %+v", rehearsed.ObjectMeta)
	}
	_, err = configMaps.Get(c.ctx, "dry", metav1.GetOptions{})
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
}

func deleteCollection(t *testing.T, c *cluster) {
	for i := range 5 {
		c.createConfigMap(t, fmt.Sprintf("a-%d", i), strconv.Itoa(i%2))
	}
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	must(t, configMaps.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "value=1"}))
	left, err := configMaps.List(c.ctx, metav1.ListOptions{LabelSelector: "value"})
	must(t, err)
	if len(left.Items) != 3 {
		t.Errorf("%d config maps are left", len(left.Items))
	}
}

func gracefulDeletion(t *testing.T, c *cluster) {
	pods := c.client.CoreV1().Pods(c.namespace)
	pod := newPod("a")
	pod.Spec.NodeName = "node-1"
	_, err := pods.Create(c.ctx, pod, metav1.CreateOptions{})
	must(t, err)
	must(t, pods.Delete(c.ctx, "a", metav1.DeleteOptions{}))
	deleted, err := pods.Get(c.ctx, "a", metav1.GetOptions{})
	must(t, err)
	if deleted.DeletionTimestamp == nil || *deleted.DeletionGracePeriodSeconds != 30 {
		t.Errorf("deleted at %v with grace %v", deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds)
	}
	must(t, pods.Delete(c.ctx, "a", *metav1.NewDeleteOptions(0)))
	_, err = pods.Get(c.ctx, "a", metav1.GetOptions{})
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
}

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// newPod returns a pod with one container, c, and the label app=web.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func newPodTemplate() corev1.PodTemplateSpec {
	pod := newPod("")
	return corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
}

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: newPodTemplate(),
		},
	}
}

func newStatefulSet(name string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name,
			Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template:    newPodTemplate(),
		},
	}
}
