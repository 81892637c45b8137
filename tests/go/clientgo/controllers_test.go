// Controllers: work queues, leader election and events, as operators put them together.
package clientgo

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

func TestControllers(t *testing.T) {
	runCases(t, []testCase{
		{"WorkQueue", workQueueController},
		{"LeaderElection", leaderElection},
		{"LeaderElectionRelease", leaderElectionRelease},
		{"LeaderIsKilled", leaderIsKilled},
		{"EventRecorder", eventRecorder},
		{"EventsV1Recorder", eventsV1Recorder},
	})
}

// mirror is a controller that keeps a secret for each config map with the label value, owned by it.
type mirror struct {
	client     kubernetes.Interface
	namespace  string
	configMaps corelisters.ConfigMapLister
	secrets    corelisters.SecretLister
	queue      workqueue.TypedRateLimitingInterface[string]
}

// newMirror returns the controller and starts its informers.
func newMirror(t *testing.T, ctx context.Context, client kubernetes.Interface, namespace string) *mirror {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "value" }))
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, 100*time.Millisecond)
	m := &mirror{
		client: client, namespace: namespace,
		configMaps: factory.Core().V1().ConfigMaps().Lister(),
		secrets:    factory.Core().V1().Secrets().Lister(),
		queue:      workqueue.NewTypedRateLimitingQueue(limiter),
	}
	enqueue := func(object any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if err != nil {
			t.Error(err)
			return
		}
		m.queue.Add(key)
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }, DeleteFunc: enqueue,
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().ConfigMaps().Informer(), factory.Core().V1().Secrets().Informer(),
	} {
		_, err := informer.AddEventHandler(handler)
		must(t, err)
	}
	factory.StartWithContext(ctx)
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("the informer of %v did not sync", informer)
		}
	}
	return m
}

// work reconciles keys until the queue is shut down.
func (m *mirror) work(ctx context.Context) {
	for {
		key, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		if err := m.reconcile(ctx, key); err != nil {
			m.queue.AddRateLimited(key)
		} else {
			m.queue.Forget(key)
		}
		m.queue.Done(key)
	}
}

// reconcile makes the secret equal to the config map, by what the caches say. The garbage collector deletes it.
func (m *mirror) reconcile(ctx context.Context, key string) error {
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	configMap, err := m.configMaps.ConfigMaps(m.namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	secrets := m.client.CoreV1().Secrets(m.namespace)
	current, err := m.secrets.Secrets(m.namespace).Get(name)
	if apierrors.IsNotFound(err) {
		owner := *metav1.NewControllerRef(configMap, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: configMap.Labels, OwnerReferences: []metav1.OwnerReference{owner}},
			Data:       map[string][]byte{"value": []byte(configMap.Data["value"])},
		}
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		return err
	} else if err != nil {
		return err
	}
	if string(current.Data["value"]) == configMap.Data["value"] {
		return nil
	}
	changed := current.DeepCopy()
	changed.Data["value"] = []byte(configMap.Data["value"])
	_, err = secrets.Update(ctx, changed, metav1.UpdateOptions{})
	return err
}

// workQueueController runs two replicas of a controller with two workers each, and waits until they converge.
func workQueueController(t *testing.T, c *cluster) {
	const objects = 20
	ctx, cancel := context.WithCancel(c.ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for range 2 {
		controller := newMirror(t, ctx, c.client, c.namespace)
		defer controller.queue.ShutDown()
		for range 2 {
			workers.Go(func() { controller.work(ctx) })
		}
	}
	name := func(i int) string { return fmt.Sprintf("mirrored-%d", i) }
	for i := range objects {
		c.createConfigMap(t, name(i), "1")
	}
	for i := range objects {
		c.setConfigMap(t, name(i), "2")
	}
	for i := range objects / 2 {
		c.deleteConfigMap(t, name(i))
	}
	// A secret that somebody else deletes comes back.
	await(c.ctx, t, "the last secret is made", func() error {
		return c.client.CoreV1().Secrets(c.namespace).Delete(c.ctx, name(objects-1), metav1.DeleteOptions{})
	})
	await(c.ctx, t, "the secrets converge", func() error {
		list, err := c.client.CoreV1().Secrets(c.namespace).List(c.ctx, metav1.ListOptions{LabelSelector: "value"})
		must(t, err)
		if len(list.Items) != objects/2 {
			return fmt.Errorf("%d secrets", len(list.Items))
		}
		for _, secret := range list.Items {
			if string(secret.Data["value"]) != "2" {
				return fmt.Errorf("%s has %q", secret.Name, secret.Data["value"])
			}
		}
		return nil
	})
}

// electionConfig returns the configuration of a candidate for the lease named leader.
func electionConfig(client kubernetes.Interface, namespace, identity string, callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "leader"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		// A leader on a busy machine loses the lease if its renewals take longer than RenewDeadline.
		LeaseDuration: 8 * time.Second, RenewDeadline: 6 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: callbacks,
	}
}

// candidate takes part in an election until its context is done. It reports its name each time it is elected.
func (c *cluster) candidate(t *testing.T, ctx context.Context, name string, releases bool, elected chan<- string) <-chan struct{} {
	config := electionConfig(c.client, c.namespace, name, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) { elected <- name },
		OnStoppedLeading: func() {},
	})
	config.ReleaseOnCancel = releases
	elector, err := leaderelection.NewLeaderElector(config)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	return done
}

func next(t *testing.T, ctx context.Context, elected <-chan string) string {
	t.Helper()
	select {
	case name := <-elected:
		return name
	case <-ctx.Done():
		t.Fatal("nobody was elected")
		return ""
	}
}

// leaderElection ends the leader without a release: the other candidate takes over when the lease has expired.
func leaderElection(t *testing.T, c *cluster) {
	elected := make(chan string, 4)
	firstContext, killFirst := context.WithCancel(c.ctx)
	defer killFirst()
	first := c.candidate(t, firstContext, "first", false, elected)
	if name := next(t, c.ctx, elected); name != "first" {
		t.Fatalf("%s was elected", name)
	}
	secondContext, stopSecond := context.WithCancel(c.ctx)
	second := c.candidate(t, secondContext, "second", false, elected)
	defer func() { stopSecond(); <-second }()
	killFirst()
	<-first
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(c.ctx, "leader", metav1.GetOptions{})
	must(t, err)
	if *lease.Spec.HolderIdentity != "first" {
		t.Errorf("the lease of a killed leader is held by %q", *lease.Spec.HolderIdentity)
	}
	if name := next(t, c.ctx, elected); name != "second" {
		t.Errorf("%s was elected", name)
	}
	lease, err = c.client.CoordinationV1().Leases(c.namespace).Get(c.ctx, "leader", metav1.GetOptions{})
	must(t, err)
	checkLease(t, lease, "second", 1)
}

func checkLease(t *testing.T, lease *coordinationv1.Lease, holder string, transitions int32) {
	t.Helper()
	if *lease.Spec.HolderIdentity != holder || *lease.Spec.LeaseTransitions != transitions || lease.Spec.RenewTime.IsZero() {
		t.Errorf("lease %+v, want holder %s after %d transitions", lease.Spec, holder, transitions)
	}
}

// leaderElectionRelease ends the leader with a release: it no longer holds the lease, which the other candidate acquires.
func leaderElectionRelease(t *testing.T, c *cluster) {
	elected := make(chan string, 4)
	firstContext, stopFirst := context.WithCancel(c.ctx)
	defer stopFirst()
	first := c.candidate(t, firstContext, "first", true, elected)
	next(t, c.ctx, elected)
	secondContext, stopSecond := context.WithCancel(c.ctx)
	second := c.candidate(t, secondContext, "second", true, elected)
	stopFirst()
	<-first
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(c.ctx, "leader", metav1.GetOptions{})
	must(t, err)
	if *lease.Spec.HolderIdentity == "first" {
		t.Error("the first candidate holds the lease after its release")
	}
	if name := next(t, c.ctx, elected); name != "second" {
		t.Errorf("%s was elected", name)
	}
	stopSecond()
	<-second
	lease, err = c.client.CoordinationV1().Leases(c.namespace).Get(c.ctx, "leader", metav1.GetOptions{})
	must(t, err)
	if *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lease is held by %q after its release", *lease.Spec.HolderIdentity)
	}
}

// eventRecorder records an event three times through core/v1: one object, with a count.
func eventRecorder(t *testing.T, c *cluster) {
	pod, err := c.client.CoreV1().Pods(c.namespace).Create(c.ctx, newPod("a"), metav1.CreateOptions{})
	must(t, err)
	broadcaster := record.NewBroadcaster(record.WithContext(c.ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "tester"})
	for range 3 {
		recorder.Eventf(pod, corev1.EventTypeWarning, "Tested", "tested %s", pod.Name)
	}
	await(c.ctx, t, "the event has count 3", func() error {
		list, err := c.client.CoreV1().Events(c.namespace).List(c.ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=a,reason=Tested,type=Warning"})
		must(t, err)
		if len(list.Items) != 1 || list.Items[0].Count != 3 || list.Items[0].Message != "tested a" {
			return fmt.Errorf("events %+v", list.Items)
		}
		return nil
	})
	found, err := c.client.CoreV1().Events(c.namespace).Search(scheme.Scheme, pod)
	must(t, err)
	if len(found.Items) != 1 {
		t.Errorf("search found %d events", len(found.Items))
	}
}

// eventsV1Recorder records an event twice through events.k8s.io/v1, which makes a series of it.
func eventsV1Recorder(t *testing.T, c *cluster) {
	pod, err := c.client.CoreV1().Pods(c.namespace).Create(c.ctx, newPod("a"), metav1.CreateOptions{})
	must(t, err)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	defer broadcaster.Shutdown()
	must(t, broadcaster.StartRecordingToSinkWithContext(ctx))
	recorder := broadcaster.NewRecorder(scheme.Scheme, "example.com/tester")
	recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Tested", "Testing", "tested %s", pod.Name)
	var event eventsv1.Event
	await(c.ctx, t, "the event is recorded", func() error {
		list, err := c.client.EventsV1().Events(c.namespace).List(c.ctx, metav1.ListOptions{FieldSelector: "regarding.name=a,reason=Tested"})
		must(t, err)
		if len(list.Items) != 1 {
			return fmt.Errorf("events %+v", list.Items)
		}
		event = list.Items[0]
		return nil
	})
	if event.Action != "Testing" || event.ReportingController != "example.com/tester" || event.Note != "tested a" || event.EventTime.IsZero() {
		t.Errorf("event %+v", event)
	}
	recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Tested", "Testing", "tested %s", pod.Name)
	await(c.ctx, t, "the event has a series", func() error {
		got, err := c.client.EventsV1().Events(c.namespace).Get(c.ctx, event.Name, metav1.GetOptions{})
		must(t, err)
		if got.Series == nil || got.Series.Count < 2 {
			return fmt.Errorf("series %v", got.Series)
		}
		return nil
	})
	// It is the same object as an event of core/v1.
	old, err := c.client.CoreV1().Events(c.namespace).Get(c.ctx, event.Name, metav1.GetOptions{})
	must(t, err)
	if old.UID != event.UID || old.Message != "tested a" || old.InvolvedObject.UID != pod.UID {
		t.Errorf("event of core/v1: %+v", old)
	}
}
