// What informers see across a server's restart, a kill, a compaction of storage and the end of a watch's history.
package clientgo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"watchet/tests/testserver"
)

// observer is an informer of config maps, what its handler was called with, and how often it asked for the state.
type observer struct {
	name     string
	informer cache.SharedIndexInformer
	seen     *notifications
	relists  *atomic.Int64
}

// listOnly is a ListerWatcher without WatchList, whatever the feature gate says.
type listOnly struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go's reflector asks.
func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

// asksForState says whether a request asks for all config maps, by a list or by a watch that begins with them.
func asksForState(request *http.Request) bool {
	query := request.URL.Query()
	return request.Method == http.MethodGet && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true")
}

// startObservers runs an informer of each kind through the link, and returns when they have synced.
func startObservers(t *testing.T, c *cluster, link *link) []*observer {
	t.Helper()
	var observers []*observer
	add := func(name, encoding string, newInformer func(config *rest.Config) cache.SharedIndexInformer) {
		config, relists := countRequests(c.config, asksForState)
		config.ContentType = encoding
		config.Dial = link.dial
		informer := newInformer(config)
		observers = append(observers, &observer{name, informer, observe(t, informer), relists})
		runInformer(t, c.ctx, informer)
	}
	for _, encoding := range encodings {
		add("typed "+encoding, encoding, func(config *rest.Config) cache.SharedIndexInformer {
			client := kubernetes.NewForConfigOrDie(config)
			return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(c.namespace)).Core().V1().ConfigMaps().Informer()
		})
		add("list and watch "+encoding, encoding, func(config *rest.Config) cache.SharedIndexInformer {
			client := kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient()
			listWatch := cache.NewListWatchFromClient(client, "configmaps", c.namespace, fields.Everything())
			return cache.NewSharedIndexInformer(listOnly{listWatch}, &corev1.ConfigMap{}, 0, cache.Indexers{})
		})
	}
	add("dynamic", runtime.ContentTypeJSON, func(config *rest.Config) cache.SharedIndexInformer {
		return dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0, c.namespace, nil).ForResource(configMaps).Informer()
	})
	add("metadata", runtime.ContentTypeProtobuf, func(config *rest.Config) cache.SharedIndexInformer {
		return metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(config), 0, c.namespace, nil).ForResource(configMaps).Informer()
	})
	return observers
}

// checkNeverRelisted fails the test unless the informer asked for the state once and saw changes in order.
func (o *observer) checkNeverRelisted(t *testing.T) {
	t.Helper()
	if relists := o.relists.Load(); relists != 1 {
		t.Errorf("the informer %s asked for the state %d times", o.name, relists)
	}
	checkOrder(t, o.seen)
}

// awaitConvergence waits until each informer's store is equal to a list.
func awaitConvergence(t *testing.T, c *cluster, observers []*observer) {
	t.Helper()
	for _, observer := range observers {
		await(c.ctx, t, "convergence of the informer "+observer.name, func() error {
			// Listed again each time: a write whose client stopped waiting can still be carried out.
			list, err := c.client.CoreV1().ConfigMaps(c.namespace).List(c.ctx, metav1.ListOptions{})
			must(t, err)
			var got, want []string
			for _, item := range list.Items {
				want = append(want, item.Name+"@"+item.ResourceVersion)
			}
			slices.Sort(want)
			for _, object := range observer.informer.GetStore().List() {
				accessor, err := meta.Accessor(object)
				must(t, err)
				got = append(got, accessor.GetName()+"@"+accessor.GetResourceVersion())
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
}

// link is a dialer whose connections can be cut, as those of a client that loses its network.
type link struct {
	mutex       sync.Mutex
	isCut       bool
	connections []net.Conn
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.isCut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		l.connections = append(l.connections, connection)
	}
	return connection, err
}

// cut closes the connections and refuses new ones until mend is called.
func (l *link) cut(t *testing.T) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.isCut = true
	for _, connection := range l.connections {
		if err := connection.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("cut a connection: %v", err)
		}
	}
	l.connections = nil
}

func (l *link) mend() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.isCut = false
}

// TestRestart ends the server with SIGTERM and starts it again. Informers resume: they see every change once,
// those that another server on the same etcd made meanwhile included, and do not ask for the state again.
func TestRestart(t *testing.T) {
	t.Parallel()
	testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
		t.Parallel()
		server := testserver.Start(t, backend)
		c := newCluster(t, server, backend, runtime.ContentTypeProtobuf)
		c.createConfigMap(t, "kept", "1")
		c.createConfigMap(t, "deleted", "1")
		observers := startObservers(t, c, &link{})
		c.setConfigMap(t, "kept", "2")
		awaitConvergence(t, c, observers)
		server.Stop()
		if backend == testserver.Etcd {
			other := *c
			other.Server = testserver.StartOnEtcd(t, server.EtcdEndpoint)
			other.client = kubernetes.NewForConfigOrDie(other.Server.Config())
			other.setConfigMap(t, "kept", "3")
			other.createConfigMap(t, "meanwhile", "1")
			server.Relaunch()
		} else {
			server.Relaunch()
			c.setConfigMap(t, "kept", "3")
			c.createConfigMap(t, "meanwhile", "1")
		}
		c.deleteConfigMap(t, "deleted")
		awaitConvergence(t, c, observers)
		for _, observer := range observers {
			awaitKinds(t, c, observer.seen, "kept", "added", "updated", "updated")
			awaitKinds(t, c, observer.seen, "meanwhile", "added")
			awaitKinds(t, c, observer.seen, "deleted", "added", "deleted")
			observer.checkNeverRelisted(t)
		}
	})
}

// TestKill ends the server with SIGKILL under writes. What it acknowledged is there when it runs again, and
// informers converge.
func TestKill(t *testing.T) {
	t.Parallel()
	testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
		t.Parallel()
		const writers = 4
		server := testserver.Start(t, backend, "--durability=fsync")
		c := newCluster(t, server, backend, runtime.ContentTypeProtobuf)
		name := func(i int) string { return fmt.Sprintf("counter-%d", i) }
		for i := range writers {
			c.createConfigMap(t, name(i), "0")
		}
		observers := startObservers(t, c, &link{})
		acknowledged := make([]atomic.Int64, writers)
		ctx, stop := context.WithCancel(c.ctx)
		var group sync.WaitGroup
		defer group.Wait()
		defer stop()
		for i := range writers {
			group.Go(func() {
				for value := int64(1); ctx.Err() == nil; value++ {
					patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, value)
					_, err := c.client.CoreV1().ConfigMaps(c.namespace).Patch(ctx, name(i), types.MergePatchType, patch, metav1.PatchOptions{})
					if err == nil {
						acknowledged[i].Store(value)
					} else {
						// Writers that try again without a pause take the CPU from the server that starts.
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
		awaitWrites := func(more int64) {
			t.Helper()
			for i := range acknowledged {
				before := acknowledged[i].Load()
				await(c.ctx, t, "acknowledged writes", func() error {
					if got := acknowledged[i].Load(); got < before+more {
						return fmt.Errorf("writer %d is at %d", i, got)
					}
					return nil
				})
			}
		}
		awaitWrites(20)
		server.Kill()
		var atKill [writers]int64
		for i := range acknowledged {
			atKill[i] = acknowledged[i].Load()
		}
		server.Relaunch()
		for i := range writers {
			object, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(c.ctx, name(i), metav1.GetOptions{})
			must(t, err)
			stored, err := strconv.ParseInt(object.Data["value"], 10, 64)
			must(t, err)
			if stored < atKill[i] {
				t.Errorf("%s is at %d after the kill, %d was acknowledged", name(i), stored, atKill[i])
			}
		}
		awaitWrites(5)
		stop()
		group.Wait()
		awaitConvergence(t, c, observers)
		for _, observer := range observers {
			checkOrder(t, observer.seen)
		}
	})
}

// TestCompaction compacts storage twice a second. Versions that it has forgotten are expired for lists and pages;
// informers that are connected see nothing of it.
func TestCompaction(t *testing.T) {
	t.Parallel()
	testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
		t.Parallel()
		server := testserver.Start(t, backend, "--etcd-compaction-interval=500ms")
		c := newCluster(t, server, backend, runtime.ContentTypeJSON)
		c.createConfigMap(t, "a", "0")
		c.createConfigMap(t, "b", "0")
		objects := c.client.CoreV1().ConfigMaps(c.namespace)
		page, err := objects.List(c.ctx, metav1.ListOptions{Limit: 1, LabelSelector: "value"})
		must(t, err)
		observers := startObservers(t, c, &link{})
		// The cache asks what storage has forgotten every 15 s.
		writes := awaitExpiry(t, c, page.ResourceVersion, listAt, func(writes int) {
			c.setConfigMap(t, "a", strconv.Itoa(writes))
		})
		_, err = objects.List(c.ctx, metav1.ListOptions{Limit: 1, LabelSelector: "value", Continue: page.Continue})
		mustBe(t, "ResourceExpired", apierrors.IsResourceExpired, err)
		// The error carries a token that goes on inconsistently.
		resumed, err := objects.List(c.ctx, metav1.ListOptions{Limit: 1, LabelSelector: "value", Continue: statusOf(t, err).Continue})
		must(t, err)
		if len(resumed.Items) != 1 || resumed.Items[0].Name != "b" {
			t.Errorf("resumed with %v", resumed.Items)
		}
		awaitConvergence(t, c, observers)
		for _, observer := range observers {
			await(c.ctx, t, "all updates", func() error {
				if got := len(observer.seen.kinds("a")); got != writes+1 {
					return fmt.Errorf("the informer %s saw %d of %d changes", observer.name, got, writes+1)
				}
				return nil
			})
			observer.checkNeverRelisted(t)
		}
	})
}

// TestCompactionAndRestart disconnects informers, compacts storage and restarts the server, so that neither knows
// what they missed: they are sent a 410, ask for the state again and converge.
func TestCompactionAndRestart(t *testing.T) {
	t.Parallel()
	testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
		t.Parallel()
		server := testserver.Start(t, backend, "--etcd-compaction-interval=500ms")
		missChanges(t, server, backend, func(c *cluster, version string) {
			// A cache that begins now leaves exact lists of the past to storage; so they show what is compacted. But it
			// has read its history, and answers watches from it: only the one after it cannot.
			server.Stop()
			server.Relaunch()
			awaitExpiry(t, c, version, listAt, func(writes int) {
				c.createConfigMap(t, fmt.Sprintf("later-%d", writes), "1")
			})
			server.Stop()
			server.Relaunch()
		})
	})
}

// TestExpiry disconnects informers for longer than the server remembers changes: a watch from the version that they
// saw last is sent a 410, and they ask for the state again.
func TestExpiry(t *testing.T) {
	t.Parallel()
	testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
		t.Parallel()
		server := testserver.Start(t, backend, "--watch-history-window=1s")
		missChanges(t, server, backend, func(c *cluster, version string) {
			// A cache remembers at least a hundred changes, however old they are.
			awaitExpiry(t, c, version, firstError, func(writes int) {
				for i := range 20 {
					c.createConfigMap(t, fmt.Sprintf("later-%d-%d", writes, i), "1")
				}
			})
		})
	})
}

// missChanges disconnects informers, makes changes that they miss, has expire make the version that they saw
// last expire, connects them again, and checks what they see.
func missChanges(t *testing.T, server *testserver.Server, backend testserver.Backend, expire func(c *cluster, version string)) {
	t.Helper()
	c := newCluster(t, server, backend, runtime.ContentTypeProtobuf)
	c.createConfigMap(t, "kept", "1")
	last := c.createConfigMap(t, "deleted", "1")
	link := &link{}
	observers := startObservers(t, c, link)
	awaitConvergence(t, c, observers)
	link.cut(t)
	c.deleteConfigMap(t, "deleted")
	c.setConfigMap(t, "kept", "2")
	c.createConfigMap(t, "meanwhile", "1")
	expire(c, last.ResourceVersion)
	if err := firstError(t, c, last.ResourceVersion); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from version %s returns %v", last.ResourceVersion, err)
	}
	// Until cannot recover from an expired version; UntilWithSync does.
	_, err := watchtools.Until(c.ctx, last.ResourceVersion, c.listWatch(), hasValue(watch.Added, "never"))
	mustBe(t, "ResourceExpired", apierrors.IsResourceExpired, err)
	link.mend()
	awaitConvergence(t, c, observers)
	for _, observer := range observers {
		awaitKinds(t, c, observer.seen, "kept", "added", "updated")
		awaitKinds(t, c, observer.seen, "meanwhile", "added")
		awaitKinds(t, c, observer.seen, "deleted", "added", "deleted unseen")
		if relists := observer.relists.Load(); relists < 2 {
			t.Errorf("the informer %s asked for the state %d times", observer.name, relists)
		}
	}
}

// awaitExpiry writes until a read at a version returns that it has expired, and returns how often. Each call of write
// has the number of calls so far, itself included.
func awaitExpiry(t *testing.T, c *cluster, version string, read func(*testing.T, *cluster, string) error, write func(writes int)) int {
	t.Helper()
	writes := 0
	awaitEvery(c.ctx, t, 50*time.Millisecond, "the version "+version+" expires", func() error {
		writes++
		write(writes)
		if err := read(t, c, version); !apierrors.IsResourceExpired(err) {
			return fmt.Errorf("the read returns %v after %d writes", err, writes)
		}
		return nil
	})
	return writes
}

// listAt returns the error of a list at exactly a version.
func listAt(t *testing.T, c *cluster, version string) error {
	t.Helper()
	_, err := c.client.CoreV1().ConfigMaps(c.namespace).List(c.ctx, metav1.ListOptions{
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	return err
}

// firstError watches from a version and returns the error that ends the watch, or nil after another event.
func firstError(t *testing.T, c *cluster, version string) error {
	t.Helper()
	watcher, err := c.client.CoreV1().ConfigMaps(c.namespace).Watch(c.ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if event.Type != watch.Error {
		return nil
	}
	if _, open := <-watcher.ResultChan(); open {
		t.Error("the watch goes on after its error")
	}
	return apierrors.FromObject(event.Object)
}
