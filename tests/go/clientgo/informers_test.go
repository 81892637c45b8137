// Shared informers, with WatchList on and off: typed, dynamic, metadata-only and of custom resources, with
// selectors, transforms, resyncs and indexers, under bursts and many on a connection.
package clientgo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchet/tests/testserver"
)

// TestInformers runs with both values of client-go's feature gate WatchListClient. The gate is global, so this test
// is not parallel to others.
func TestInformers(t *testing.T) {
	cases := []testCase{
		{"Sync", sharedInformerSyncs},
		{"Factory", informerFactory},
		{"Dynamic", dynamicInformer},
		{"Metadata", metadataInformer},
		{"CustomResource", customResourceInformer},
		{"TypedCustomResource", typedInformer},
		{"LabelSelector", labelSelectorInformer},
		{"FieldSelector", fieldSelectorInformer},
		{"Transform", transformInformer},
		{"Resync", resyncInformer},
		{"Indexers", indexedInformer},
		{"ManyOnOneConnection", manyOnOneConnection},
	}
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", watchList), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
				t.Parallel()
				server := testserver.Start(t, backend)
				runCasesOn(t, server, backend, encodings, cases)
				// One encoding for each value of the gate: the other combinations differ in the initial state only.
				encoding := encodings[0]
				if watchList {
					encoding = encodings[1]
				}
				runCasesOn(t, server, backend, []string{encoding}, []testCase{{"Burst", burst}})
			})
		})
	}
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// runInformer runs an informer until the case ends, and returns when it has synced.
func runInformer(t testing.TB, ctx context.Context, informer cache.SharedIndexInformer) {
	t.Helper()
	startInformer(t, ctx, informer)
	awaitSync(t, ctx, informer)
}

// startInformer runs an informer until the case ends.
func startInformer(t testing.TB, ctx context.Context, informer cache.SharedIndexInformer) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() { cancel(); <-stopped })
}

func awaitSync(t testing.TB, ctx context.Context, informer cache.SharedIndexInformer) {
	t.Helper()
	await(ctx, t, "sync of the informer", func() error {
		if !informer.HasSynced() {
			return errors.New("it has not synced")
		}
		return nil
	})
}

// sharedInformerSyncs is the regression test of gzip members that ended without a sync flush: with client-go's
// defaults (WatchList, gzip) no informer ever synced.
func sharedInformerSyncs(t *testing.T, c *cluster) {
	for i := range 3 {
		c.createConfigMap(t, fmt.Sprintf("sync-%d", i), "1")
	}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	lister := factory.Core().V1().ConfigMaps().Lister()
	ctx, cancel := context.WithCancel(c.ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.StartWithContext(ctx)
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("the informer of %v did not sync", informer)
		}
	}
	for i := range 3 {
		await(c.ctx, t, "the lister has what was there before", func() error {
			_, err := lister.ConfigMaps(c.namespace).Get(fmt.Sprintf("sync-%d", i))
			return err
		})
	}
}

// notification is what a handler was called with.
type notification struct {
	kind, name, version string
}

// notifications collects what a handler is called with.
type notifications struct {
	mutex sync.Mutex
	list  []notification
}

func (n *notifications) add(kind string, object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		kind, object = "deleted unseen", tombstone.Obj
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		kind, accessor = err.Error(), &metav1.ObjectMeta{}
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.list = append(n.list, notification{kind, accessor.GetName(), accessor.GetResourceVersion()})
}

func (n *notifications) all() []notification {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return slices.Clone(n.list)
}

// kinds returns the kinds of notifications about an object, in their order.
func (n *notifications) kinds(name string) []string {
	var kinds []string
	for _, notification := range n.all() {
		if notification.name == name {
			kinds = append(kinds, notification.kind)
		}
	}
	return kinds
}

// observe adds a handler to the informer that collects what it is called with.
func observe(t testing.TB, informer cache.SharedIndexInformer) *notifications {
	t.Helper()
	seen := &notifications{}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { seen.add("added", object) },
		UpdateFunc: func(_, object any) { seen.add("updated", object) },
		DeleteFunc: func(object any) { seen.add("deleted", object) },
	})
	must(t, err)
	return seen
}

// awaitKinds waits until an object's notifications are of the kinds.
func awaitKinds(t testing.TB, c *cluster, seen *notifications, name string, want ...string) {
	t.Helper()
	await(c.ctx, t, "notifications about "+name, func() error {
		if got := seen.kinds(name); !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

// changes creates an object before the informer runs and one after, updates both and deletes one.
func changes(t *testing.T, c *cluster, informer cache.SharedIndexInformer) {
	t.Helper()
	seen := observe(t, informer)
	c.createConfigMap(t, "before", "1")
	runInformer(t, c.ctx, informer)
	// Without WatchList the first list is at version "0", which may be older than the object.
	await(c.ctx, t, "the store has what was there before", func() error {
		_, exists, err := informer.GetStore().GetByKey(c.namespace + "/before")
		if err == nil && !exists {
			err = errors.New("the store lacks an object")
		}
		return err
	})
	c.createConfigMap(t, "after", "1")
	c.setConfigMap(t, "before", "2")
	last := c.setConfigMap(t, "after", "2")
	c.deleteConfigMap(t, "before")
	awaitKinds(t, c, seen, "before", "added", "updated", "deleted")
	awaitKinds(t, c, seen, "after", "added", "updated")
	stored, exists, err := informer.GetStore().GetByKey(c.namespace + "/after")
	must(t, err)
	if !exists {
		t.Fatal("the store lacks an object")
	}
	accessor, err := meta.Accessor(stored)
	must(t, err)
	if accessor.GetResourceVersion() != last.ResourceVersion || accessor.GetLabels()["value"] != "2" {
		t.Errorf("stored %v, want version %s", accessor, last.ResourceVersion)
	}
}

func informerFactory(t *testing.T, c *cluster) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace))
	changes(t, c, factory.Core().V1().ConfigMaps().Informer())
}

func dynamicInformer(t *testing.T, c *cluster) {
	client := dynamic.NewForConfigOrDie(c.config)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, c.namespace, nil)
	changes(t, c, factory.ForResource(configMaps).Informer())
}

func metadataInformer(t *testing.T, c *cluster) {
	client := metadata.NewForConfigOrDie(c.config)
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, c.namespace, nil)
	informer := factory.ForResource(configMaps).Informer()
	changes(t, c, informer)
	for _, object := range informer.GetStore().List() {
		if _, ok := object.(*metav1.PartialObjectMetadata); !ok {
			t.Errorf("stored %T", object)
		}
	}
}

// customResourceInformer follows custom resources, their metadata, and those that a selectable field selects.
func customResourceInformer(t *testing.T, c *cluster) {
	definition := c.createDefinition(t)
	widgets := schema.GroupVersionResource{Group: definition.Spec.Group, Version: "v1", Resource: "widgets"}
	client := dynamic.NewForConfigOrDie(c.config)
	dynamicFactory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, c.namespace, nil)
	redFactory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, c.namespace,
		func(options *metav1.ListOptions) { options.FieldSelector = "spec.color=red" })
	metadataFactory := metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(c.config), 0, c.namespace, nil)
	all, red := dynamicFactory.ForResource(widgets).Informer(), redFactory.ForResource(widgets).Informer()
	partial := metadataFactory.ForResource(widgets).Informer()
	seenAll, seenRed, seenPartial := observe(t, all), observe(t, red), observe(t, partial)
	for _, informer := range []cache.SharedIndexInformer{all, red, partial} {
		runInformer(t, c.ctx, informer)
	}
	objects := client.Resource(widgets).Namespace(c.namespace)
	_, err := objects.Create(c.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"size": int64(1), "color": "red"},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = objects.Patch(c.ctx, "a", types.MergePatchType, []byte(`{"spec":{"color":"blue"}}`), metav1.PatchOptions{})
	must(t, err)
	_, err = objects.Patch(c.ctx, "a", types.MergePatchType, []byte(`{"status":{"size":1}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	must(t, objects.Delete(c.ctx, "a", metav1.DeleteOptions{}))
	awaitKinds(t, c, seenAll, "a", "added", "updated", "updated", "deleted")
	awaitKinds(t, c, seenPartial, "a", "added", "updated", "updated", "deleted")
	awaitKinds(t, c, seenRed, "a", "added", "deleted")
}

// labelSelectorInformer sees an object come when it gets the label and go when it loses it.
func labelSelectorInformer(t *testing.T, c *cluster) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "value in (2,3)" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	seen := observe(t, informer)
	c.createConfigMap(t, "a", "1")
	runInformer(t, c.ctx, informer)
	for value := 2; value <= 4; value++ {
		c.setConfigMap(t, "a", strconv.Itoa(value))
	}
	awaitKinds(t, c, seen, "a", "added", "updated", "deleted")
	if len(informer.GetStore().List()) != 0 {
		t.Errorf("stored %v", informer.GetStore().ListKeys())
	}
}

// fieldSelectorInformer follows the pods of a node: one is bound to it, finishes, and is deleted.
func fieldSelectorInformer(t *testing.T, c *cluster) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = "spec.nodeName=node-1,status.phase!=Succeeded"
		}))
	informer := factory.Core().V1().Pods().Informer()
	seen := observe(t, informer)
	runInformer(t, c.ctx, informer)
	pods := c.client.CoreV1().Pods(c.namespace)
	for _, name := range []string{"a", "other"} {
		_, err := pods.Create(c.ctx, newPod(name), metav1.CreateOptions{})
		must(t, err)
	}
	target := corev1.ObjectReference{Kind: "Node", Name: "node-1"}
	must(t, pods.Bind(c.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: target}, metav1.CreateOptions{}))
	for _, phase := range []string{"Running", "Succeeded"} {
		_, err := pods.Patch(c.ctx, "a", types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
		must(t, err)
	}
	awaitKinds(t, c, seen, "a", "added", "updated", "deleted")
	if kinds := seen.kinds("other"); len(kinds) != 0 {
		t.Errorf("notifications about another pod: %q", kinds)
	}
}

func transformInformer(t *testing.T, c *cluster) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace),
		informers.WithTransform(func(object any) (any, error) {
			if configMap, ok := object.(*corev1.ConfigMap); ok {
				configMap.ManagedFields, configMap.Data = nil, nil
			}
			return object, nil
		}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	changes(t, c, informer)
	for _, object := range informer.GetStore().List() {
		if configMap := object.(*corev1.ConfigMap); configMap.ManagedFields != nil || configMap.Data != nil {
			t.Errorf("the stored object is not transformed: %v", configMap)
		}
	}
}

// resyncInformer has a handler that is called again each second with what has not changed.
func resyncInformer(t *testing.T, c *cluster) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, time.Second, informers.WithNamespace(c.namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	var resynced atomic.Int64
	_, err := informer.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if before.(*corev1.ConfigMap).ResourceVersion == after.(*corev1.ConfigMap).ResourceVersion {
				resynced.Add(1)
			}
		},
	}, time.Second)
	must(t, err)
	seen := observe(t, informer)
	c.createConfigMap(t, "a", "1")
	runInformer(t, c.ctx, informer)
	await(c.ctx, t, "a resync", func() error {
		if resynced.Load() == 0 {
			return errors.New("the handler was not called again")
		}
		return nil
	})
	// The handlers run concurrently: this one may be behind the one that was called again.
	await(c.ctx, t, "an addition", func() error {
		if kinds := seen.kinds("a"); len(kinds) == 0 || kinds[0] != "added" {
			return fmt.Errorf("notifications %q", kinds)
		}
		return nil
	})
}

func indexedInformer(t *testing.T, c *cluster) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	must(t, informer.AddIndexers(cache.Indexers{"value": func(object any) ([]string, error) {
		return []string{object.(*corev1.ConfigMap).Data["value"]}, nil
	}}))
	for i := range 10 {
		c.createConfigMap(t, fmt.Sprintf("a-%d", i), strconv.Itoa(i%2))
	}
	runInformer(t, c.ctx, informer)
	c.setConfigMap(t, "a-0", "1")
	c.deleteConfigMap(t, "a-1")
	want := []string{"a-0", "a-3", "a-5", "a-7", "a-9"}
	await(c.ctx, t, "the index follows", func() error {
		objects, err := informer.GetIndexer().ByIndex("value", "1")
		must(t, err)
		var names []string
		for _, object := range objects {
			names = append(names, object.(*corev1.ConfigMap).Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			return fmt.Errorf("index has %q", names)
		}
		return nil
	})
}

// manyOnOneConnection runs 50 informers that share a connection, as the streams of HTTP/2.
func manyOnOneConnection(t *testing.T, c *cluster) {
	const count = 50
	config := rest.CopyConfig(c.config)
	var connections atomic.Int64
	dialer := &net.Dialer{}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connections.Add(1)
		return dialer.DialContext(ctx, network, address)
	}
	client := kubernetes.NewForConfigOrDie(config)
	observers := make([]*notifications, count)
	// The first request makes the connection: those that begin together would each dial.
	_, err := client.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}, metav1.CreateOptions{})
	must(t, err)
	var running []cache.SharedIndexInformer
	for i := range observers {
		informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(c.namespace)).
			Core().V1().ConfigMaps().Informer()
		observers[i] = observe(t, informer)
		startInformer(t, c.ctx, informer)
		running = append(running, informer)
	}
	for _, informer := range running {
		awaitSync(t, c.ctx, informer)
	}
	c.createConfigMap(t, "after", "1")
	c.deleteConfigMap(t, "after")
	for _, observer := range observers {
		awaitKinds(t, c, observer, "before", "added")
		awaitKinds(t, c, observer, "after", "added", "deleted")
	}
	if connections.Load() != 1 {
		t.Errorf("%d informers took %d connections", count, connections.Load())
	}
}

// burst makes 5,000 updates of 50 objects as fast as they go. The informer sees the versions of each object in
// their order, and the last of each.
func burst(t *testing.T, c *cluster) {
	const objects, updates, writers = 50, 5000, 16
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	informer := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(c.namespace)).
		Core().V1().ConfigMaps().Informer()
	seen := observe(t, informer)
	runInformer(t, c.ctx, informer)
	name := func(i int) string { return fmt.Sprintf("burst-%02d", i) }
	for i := range objects {
		c.createConfigMap(t, name(i), "0")
	}
	failures := make([]error, writers)
	var group sync.WaitGroup
	var value atomic.Int64
	for writer := range writers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(writer)))
			for number := value.Add(1); number <= updates && failures[writer] == nil; number = value.Add(1) {
				patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, number)
				_, failures[writer] = c.client.CoreV1().ConfigMaps(c.namespace).Patch(c.ctx, name(random.IntN(objects)), types.MergePatchType, patch, metav1.PatchOptions{})
			}
		})
	}
	group.Wait()
	must(t, errors.Join(failures...))
	list, err := c.client.CoreV1().ConfigMaps(c.namespace).List(c.ctx, metav1.ListOptions{})
	must(t, err)
	await(c.ctx, t, "the informer converges", func() error {
		for i := range list.Items {
			stored, exists, err := informer.GetStore().GetByKey(c.namespace + "/" + list.Items[i].Name)
			must(t, err)
			if !exists || stored.(*corev1.ConfigMap).ResourceVersion != list.Items[i].ResourceVersion {
				return fmt.Errorf("%s is not at version %s", list.Items[i].Name, list.Items[i].ResourceVersion)
			}
		}
		return nil
	})
	// Handlers are called after the store has changed: the last calls may still be under way.
	await(c.ctx, t, "each update is seen", func() error {
		got := 0
		for i := range objects {
			got += len(seen.kinds(name(i)))
		}
		if got < updates+objects {
			return fmt.Errorf("%d notifications of %d changes", got, updates+objects)
		}
		return nil
	})
	checkOrder(t, seen)
}

// checkOrder checks that no notification goes back in an object's history, and none is there twice.
func checkOrder(t testing.TB, seen *notifications) {
	t.Helper()
	last := map[string]uint64{}
	for _, notification := range seen.all() {
		version, err := strconv.ParseUint(notification.version, 10, 64)
		must(t, err)
		if version <= last[notification.name] {
			t.Fatalf("%s of %s at version %d follows version %d", notification.kind, notification.name, version, last[notification.name])
		}
		last[notification.name] = version
	}
}
