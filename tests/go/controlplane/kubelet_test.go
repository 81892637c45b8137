package controlplane

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

const (
	// heartbeatInterval is how often a kubelet renews the lease of its node by default.
	heartbeatInterval = 10 * time.Second
	// podWorkers is how many pods the fake kubelet handles at a time.
	podWorkers = 8
	// exitCodeAnnotation makes the containers of a pod end at once, with this exit code.
	exitCodeAnnotation = "test.watchet/exit-code"
)

// kubelet does the API's part of the kubelets of any number of nodes: it registers nodes, renews their leases, and
// writes the status of the pods that are bound to them. It runs no containers.
type kubelet struct {
	client *kubernetes.Clientset
	pods   listers.PodLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// addresses counts the pod IPs that were given out.
	addresses atomic.Uint32
	// silent holds the names of nodes whose lease is not renewed.
	silent sync.Map
	failed func(format string, args ...any)
	// running is done when the kubelet stops. Nodes outlive the subtest that adds them.
	running context.Context
	tasks   sync.WaitGroup
}

// startKubelet starts the fake kubelet. It runs until stop is called.
func startKubelet(t *testing.T, config *rest.Config) (started *kubelet, stop func()) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.UserAgent = "fake-kubelet"
	k := &kubelet{
		client: must(kubernetes.NewForConfig(config))(t),
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		failed: t.Errorf,
	}
	bound := informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = "spec.nodeName!="
	})
	factory := informers.NewSharedInformerFactoryWithOptions(k.client, 0, bound)
	informer := factory.Core().V1().Pods()
	k.pods = informer.Lister()
	enqueue := func(object any) { k.queue.Add(cache.MetaObjectToName(object.(*core.Pod))) }
	must(informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	}))(t)

	ctx, cancel := context.WithCancel(t.Context())
	k.running = ctx
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		t.Fatal("the fake kubelet's informer did not sync")
	}
	for range podWorkers {
		k.tasks.Go(func() { k.work(ctx) })
	}
	return k, func() {
		cancel()
		k.queue.ShutDown()
		factory.Shutdown()
		k.tasks.Wait()
	}
}

func (k *kubelet) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.syncPod(ctx, name); err != nil && ctx.Err() == nil {
			if !apierrors.IsConflict(err) {
				k.failed("the fake kubelet cannot sync pod %s: %v", name, err)
			}
			k.queue.AddRateLimited(name)
		} else {
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

// syncPod brings the pod's status to what its kubelet would report once containers were started, and removes pods
// that are being deleted, which only a kubelet does.
func (k *kubelet) syncPod(ctx context.Context, name cache.ObjectName) error {
	pod, err := k.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	pods := k.client.CoreV1().Pods(name.Namespace)
	if _, silent := k.silent.Load(pod.Spec.NodeName); silent {
		return nil
	}
	if pod.DeletionTimestamp != nil {
		options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
		err := pods.Delete(ctx, name.Name, options)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if pod.Status.Phase != core.PodPending {
		return nil
	}
	pod = pod.DeepCopy()
	if err := k.setStatus(pod); err != nil {
		return err
	}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setStatus makes a pending pod running and ready, or ended if its annotation says so.
func (k *kubelet) setStatus(pod *core.Pod) error {
	now := metav1.Now()
	pod.Status.StartTime = &now
	pod.Status.Phase = core.PodRunning
	ready := core.ConditionTrue
	state := core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: now}}
	if text, ends := pod.Annotations[exitCodeAnnotation]; ends {
		code, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return err
		}
		pod.Status.Phase, ready = core.PodSucceeded, core.ConditionFalse
		if code != 0 {
			pod.Status.Phase = core.PodFailed
		}
		state = core.ContainerState{Terminated: &core.ContainerStateTerminated{
			ExitCode: int32(code), StartedAt: now, FinishedAt: now,
		}}
	}
	address := k.addresses.Add(1)
	pod.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", 200+address>>16, address>>8&0xff, address&0xff)
	pod.Status.PodIPs = []core.PodIP{{IP: pod.Status.PodIP}}
	for _, condition := range []core.PodConditionType{core.PodInitialized, core.PodReady, core.ContainersReady} {
		status := ready
		if condition == core.PodInitialized {
			status = core.ConditionTrue
		}
		pod.Status.Conditions = append(pod.Status.Conditions, core.PodCondition{
			Type: condition, Status: status, LastTransitionTime: now,
		})
	}
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, core.ContainerStatus{
			Name: container.Name, Image: container.Image, State: state,
			Ready: ready == core.ConditionTrue, Started: ptr.To(ready == core.ConditionTrue),
		})
	}
	return nil
}

// addNode registers a node that is ready and starts the renewal of its lease. A node that is reserved has this key
// as a label, and as a taint that keeps pods without a toleration away.
func (k *kubelet) addNode(t *testing.T, name, reserved string) {
	t.Helper()
	ctx := t.Context()
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{core.LabelHostname: name}}}
	if reserved != "" {
		node.Labels[reserved] = "true"
		node.Spec.Taints = []core.Taint{{Key: reserved, Value: "true", Effect: core.TaintEffectNoSchedule}}
	}
	now := metav1.Now()
	node.Status.Capacity = core.ResourceList{
		core.ResourceCPU:    resource.MustParse("32"),
		core.ResourceMemory: resource.MustParse("64Gi"),
		core.ResourcePods:   resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []core.NodeCondition{{
		Type: core.NodeReady, Status: core.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	// As a kubelet: the node first, then its status, then the lease, which the node owns.
	status := node.Status
	node = must(k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}))(t)
	node = k.updateNodeStatus(t, node, status)
	lease := &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID,
		}}},
		Spec: coordination.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	leases := k.client.CoordinationV1().Leases("kube-node-lease")
	lease = must(leases.Create(ctx, lease, metav1.CreateOptions{}))(t)
	k.tasks.Go(func() { k.renew(k.running, lease) })
}

// updateNodeStatus writes the status of a node that controllers taint at the same time.
func (k *kubelet) updateNodeStatus(t *testing.T, node *core.Node, status core.NodeStatus) *core.Node {
	t.Helper()
	poll(t, "the status of node "+node.Name+" is written", convergeTimeout, func() error {
		node.Status = status
		updated, err := k.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		if err == nil {
			node = updated
			return nil
		}
		if newer, getError := k.client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{}); getError == nil {
			node = newer
		}
		return err
	})
	return node
}

// renew renews a lease every heartbeatInterval until the context ends or the node is silenced or deleted.
func (k *kubelet) renew(ctx context.Context, lease *coordination.Lease) {
	leases := k.client.CoordinationV1().Leases(lease.Namespace)
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, silent := k.silent.Load(lease.Name); silent {
			return
		}
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			// An update with the UID of a deleted lease is a conflict.
			renewed, err = leases.Get(ctx, lease.Name, metav1.GetOptions{})
		}
		switch {
		case err == nil:
			lease, failures = renewed, 0
		case apierrors.IsNotFound(err) || ctx.Err() != nil:
			return
		case failures < 2 && isTemporary(err):
			// A kubelet retries, too. The node stays Ready for longer than two heartbeat intervals.
			failures++
		default:
			k.failed("the fake kubelet cannot renew the lease of %s: %v", lease.Name, err)
			return
		}
	}
}

// isTemporary returns true for the errors that a busy machine can cause.
func isTemporary(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || utilnet.IsTimeout(err)
}

// silence stops everything that the fake kubelet does for a node, as if its machine had lost power.
func (k *kubelet) silence(node string) { k.silent.Store(node, nil) }
