// Lists in pages, and watches: by client-go's helpers, over HTTP/1.1 and websocket, and a thousand at once.
package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"

	"watchet/tests/testserver"
)

func TestWatches(t *testing.T) {
	runCases(t, []testCase{
		{"Pager", listInPages},
		{"PagerFallsBackToFullList", pagerFallback},
		{"ResourceVersionMatch", resourceVersionMatch},
		{"Until", until},
		{"UntilWithSync", untilWithSync},
		{"RetryWatcher", retryWatcher},
		{"Bookmarks", bookmarks},
		{"FutureVersion", watchFutureVersion},
		{"HTTP1", watchOverHTTP1},
		{"Websocket", watchOverWebsocket},
	})
}

// TestThousandWatches opens a thousand watches of one client and has each of them see the same writes.
func TestThousandWatches(t *testing.T) {
	server := testserver.Start(t, testserver.Embedded)
	runCasesOn(t, server, testserver.Embedded, encodings, []testCase{{"Watches", thousandWatches}})
}

// listInPages lists 25 objects in pages of ten. After the first page one is created and another deleted: all pages
// show the same version, without the one and with the other.
func listInPages(t *testing.T, c *cluster) {
	for i := range 25 {
		c.createConfigMap(t, fmt.Sprintf("page-%02d", i), "1")
	}
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	var pages []*corev1.ConfigMapList
	lister := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := configMaps.List(ctx, options)
		if err != nil {
			return nil, err
		}
		if len(pages) == 0 {
			c.createConfigMap(t, "page-99", "1")
			c.deleteConfigMap(t, "page-24")
		}
		pages = append(pages, page)
		return page, nil
	})
	lister.PageSize = 10
	object, paginated, err := lister.List(c.ctx, metav1.ListOptions{LabelSelector: "value=1"})
	must(t, err)
	items, err := meta.ExtractList(object)
	must(t, err)
	if !paginated || len(pages) != 3 || len(items) != 25 || items[24].(metav1.Object).GetName() != "page-24" {
		t.Errorf("%d items on %d pages: %v", len(items), len(pages), items)
	}
	for _, page := range pages {
		// With a selector it is not known how many remain.
		if page.ResourceVersion != pages[0].ResourceVersion || page.RemainingItemCount != nil {
			t.Errorf("page at version %s with %v remaining, the first is at %s", page.ResourceVersion, page.RemainingItemCount, pages[0].ResourceVersion)
		}
	}
	page, err := configMaps.List(c.ctx, metav1.ListOptions{Limit: 10})
	must(t, err)
	// 25 config maps and kube-root-ca.crt, which a controller creates in each namespace.
	if page.RemainingItemCount == nil || *page.RemainingItemCount != 15 && *page.RemainingItemCount != 16 {
		t.Errorf("remaining %v", page.RemainingItemCount)
	}
	count := 0
	must(t, lister.EachListItem(c.ctx, metav1.ListOptions{LabelSelector: "value"}, func(runtime.Object) error { count++; return nil }))
	if count != 25 {
		t.Errorf("%d items", count)
	}
}

// pagerFallback has the second page expire: the pager lists everything instead.
func pagerFallback(t *testing.T, c *cluster) {
	for i := range 4 {
		c.createConfigMap(t, fmt.Sprintf("page-%d", i), "1")
	}
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	expired, requests := false, 0
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		requests++
		if options.Continue != "" && !expired {
			expired = true
			return nil, apierrors.NewResourceExpired("the provided continue parameter is too old")
		}
		return configMaps.List(ctx, options)
	}
	pages := pager.New(list)
	pages.PageSize = 2
	pages.FullListIfExpired = true
	object, _, err := pages.List(c.ctx, metav1.ListOptions{LabelSelector: "value"})
	must(t, err)
	if items := object.(*corev1.ConfigMapList).Items; requests != 3 || len(items) != 4 {
		t.Errorf("%d items after %d requests", len(items), requests)
	}
}

// resourceVersionMatch lists at exact, minimum and any versions.
func resourceVersionMatch(t *testing.T, c *cluster) {
	first := c.createConfigMap(t, "a", "1")
	second := c.setConfigMap(t, "a", "2")
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	for _, test := range []struct {
		version string
		match   metav1.ResourceVersionMatch
		want    string
	}{
		{first.ResourceVersion, metav1.ResourceVersionMatchExact, "1"},
		{second.ResourceVersion, metav1.ResourceVersionMatchExact, "2"},
		{second.ResourceVersion, metav1.ResourceVersionMatchNotOlderThan, "2"},
		{first.ResourceVersion, metav1.ResourceVersionMatchNotOlderThan, "2"},
		{second.ResourceVersion, "", "2"},
		{"", "", "2"},
	} {
		list, err := configMaps.List(c.ctx, metav1.ListOptions{
			ResourceVersion: test.version, ResourceVersionMatch: test.match, LabelSelector: "value"})
		must(t, err)
		if len(list.Items) != 1 || list.Items[0].Data["value"] != test.want {
			t.Errorf("version %q match %q: %v", test.version, test.match, list.Items)
		}
		if test.match == metav1.ResourceVersionMatchExact && list.ResourceVersion != test.version {
			t.Errorf("the list at exactly %s is at %s", test.version, list.ResourceVersion)
		}
	}
}

// listWatch returns a ListerWatcher of the config map a.
func (c *cluster) listWatch() *cache.ListWatch {
	return cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "configmaps", c.namespace,
		fields.OneTermEqualSelector("metadata.name", "a"))
}

// hasValue returns a condition that an event is of a type, about a config map with the value.
func hasValue(eventType watch.EventType, value string) watchtools.ConditionFunc {
	return func(event watch.Event) (bool, error) {
		if event.Type == watch.Error {
			return false, apierrors.FromObject(event.Object)
		}
		return event.Type == eventType && event.Object.(*corev1.ConfigMap).Data["value"] == value, nil
	}
}

func until(t *testing.T, c *cluster) {
	created := c.createConfigMap(t, "a", "1")
	c.setConfigMap(t, "a", "2")
	c.setConfigMap(t, "a", "3")
	c.deleteConfigMap(t, "a")
	// The edges since the creation, in their order.
	event, err := watchtools.Until(c.ctx, created.ResourceVersion, c.listWatch(),
		hasValue(watch.Modified, "2"), hasValue(watch.Modified, "3"), hasValue(watch.Deleted, "3"))
	must(t, err)
	if event.Type != watch.Deleted {
		t.Errorf("last event %v", event)
	}
}

func untilWithSync(t *testing.T, c *cluster) {
	c.createConfigMap(t, "a", "1")
	precondition := func(store cache.Store) (bool, error) {
		_, exists, err := store.Get(&metav1.ObjectMeta{Namespace: c.namespace, Name: "a"})
		if err == nil && !exists {
			err = errors.New("the store is synced without the config map")
		}
		c.setConfigMap(t, "a", "2")
		return false, err
	}
	event, err := watchtools.UntilWithSync(c.ctx, c.listWatch(), &corev1.ConfigMap{}, precondition, hasValue(watch.Modified, "2"))
	must(t, err)
	if event.Object.(*corev1.ConfigMap).Data["value"] != "2" {
		t.Errorf("last event %v", event)
	}
}

// retryWatcher sees each event once, although the server ends every watch after a second.
func retryWatcher(t *testing.T, c *cluster) {
	created := c.createConfigMap(t, "a", "0")
	watches := 0
	short := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		watches++
		options.TimeoutSeconds = new(int64(1))
		options.FieldSelector = "metadata.name=a"
		return c.client.CoreV1().ConfigMaps(c.namespace).Watch(ctx, options)
	}}
	watcher, err := watchtools.NewRetryWatcherWithContext(c.ctx, created.ResourceVersion, short)
	must(t, err)
	defer func() { <-watcher.Done() }()
	defer watcher.Stop()
	next := func() watch.Event {
		select {
		case event := <-watcher.ResultChan():
			return event
		case <-c.ctx.Done():
			t.Fatal("no event")
			return watch.Event{}
		}
	}
	for i := 1; watches < 3; i++ {
		want := c.setConfigMap(t, "a", fmt.Sprint(i))
		event := next()
		got, ok := event.Object.(*corev1.ConfigMap)
		if !ok || event.Type != watch.Modified || got.ResourceVersion != want.ResourceVersion {
			t.Fatalf("event %d is %s %v, want version %s", i, event.Type, event.Object, want.ResourceVersion)
		}
	}
}

// bookmarks reads the initial events of a streamed list up to its bookmark.
func bookmarks(t *testing.T, c *cluster) {
	created := c.createConfigMap(t, "a", "1")
	watcher, err := c.client.CoreV1().ConfigMaps(c.namespace).Watch(c.ctx, metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		LabelSelector: "value",
	})
	must(t, err)
	defer watcher.Stop()
	added := <-watcher.ResultChan()
	if added.Type != watch.Added || added.Object.(*corev1.ConfigMap).ResourceVersion != created.ResourceVersion {
		t.Errorf("first event %v", added)
	}
	bookmark := <-watcher.ResultChan()
	object, ok := bookmark.Object.(*corev1.ConfigMap)
	if !ok || bookmark.Type != watch.Bookmark || object.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("second event %v", bookmark)
	}
	// The version of the bookmark is one to resume from.
	resumed, err := c.client.CoreV1().ConfigMaps(c.namespace).Watch(c.ctx, metav1.ListOptions{ResourceVersion: object.ResourceVersion, LabelSelector: "value"})
	must(t, err)
	defer resumed.Stop()
	c.createConfigMap(t, "b", "1")
	for _, watcher := range []watch.Interface{watcher, resumed} {
		if event := <-watcher.ResultChan(); event.Type != watch.Added || event.Object.(*corev1.ConfigMap).Name != "b" {
			t.Errorf("event %v", event)
		}
	}
}

// watchFutureVersion asks for the state at a version that storage has not reached: an error event, and the end.
func watchFutureVersion(t *testing.T, c *cluster) {
	watcher, err := c.client.CoreV1().ConfigMaps(c.namespace).Watch(c.ctx, metav1.ListOptions{
		ResourceVersion: "1000000000", SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err == nil {
		defer watcher.Stop()
		event := <-watcher.ResultChan()
		err = apierrors.FromObject(event.Object)
		if event.Type != watch.Error {
			t.Errorf("event %v", event)
		}
	}
	mustBe(t, "TooLargeResourceVersion", func(err error) bool {
		return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}, err)
}

func watchOverHTTP1(t *testing.T, c *cluster) {
	config := rest.CopyConfig(c.config)
	config.NextProtos = []string{"http/1.1"}
	var protocol string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				protocol = response.Proto
			}
			return response, err
		})
	})
	watcher, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(c.namespace).Watch(c.ctx, metav1.ListOptions{LabelSelector: "value"})
	must(t, err)
	defer watcher.Stop()
	if protocol != "HTTP/1.1" {
		t.Errorf("the watch is over %s", protocol)
	}
	c.createConfigMap(t, "a", "1")
	event := <-watcher.ResultChan()
	if event.Type != watch.Added || event.Object.(*corev1.ConfigMap).Name != "a" {
		t.Errorf("event %v", event)
	}
}

// watchOverWebsocket watches as a browser does, with each event in a message of its own.
func watchOverWebsocket(t *testing.T, c *cluster) {
	tlsConfig, err := rest.TLSConfigFor(c.config)
	must(t, err)
	url := strings.Replace(c.config.Host, "https://", "wss://", 1) + "/api/v1/namespaces/" + c.namespace + "/configmaps?watch=true&labelSelector=value"
	config, err := websocket.NewConfig(url, c.config.Host)
	must(t, err)
	config.TlsConfig = tlsConfig
	connection, err := config.DialContext(c.ctx)
	must(t, err)
	defer connection.Close()
	c.createConfigMap(t, "a", "1")
	c.deleteConfigMap(t, "a")
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		var message []byte
		must(t, websocket.Message.Receive(connection, &message))
		var event metav1.WatchEvent
		must(t, json.Unmarshal(message, &event))
		var object corev1.ConfigMap
		must(t, json.Unmarshal(event.Object.Raw, &object))
		if event.Type != string(want) || object.Name != "a" {
			t.Errorf("event %s %s", event.Type, event.Object.Raw)
		}
	}
}

func thousandWatches(t *testing.T, c *cluster) {
	const watches, writes = 1000, 5
	// The watches need a connection each few hundred streams; client-go opens them.
	watchers := make([]watch.Interface, watches)
	for i := range watchers {
		watcher, err := c.client.CoreV1().ConfigMaps(c.namespace).Watch(c.ctx, metav1.ListOptions{LabelSelector: "value"})
		must(t, err)
		defer watcher.Stop()
		watchers[i] = watcher
	}
	var versions []string
	for i := range writes {
		versions = append(versions, c.createConfigMap(t, fmt.Sprintf("a-%d", i), "1").ResourceVersion)
	}
	for i, watcher := range watchers {
		for _, version := range versions {
			select {
			case event := <-watcher.ResultChan():
				if object, ok := event.Object.(*corev1.ConfigMap); !ok || object.ResourceVersion != version {
					t.Fatalf("watch %d got %v instead of version %s", i, event, version)
				}
			case <-c.ctx.Done():
				t.Fatalf("watch %d got no event", i)
			}
		}
	}
}
