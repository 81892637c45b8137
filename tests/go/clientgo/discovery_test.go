// Discovery, REST mappers, cached discovery, OpenAPI documents and custom resource definitions.
package clientgo

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

func TestDiscovery(t *testing.T) {
	runCases(t, []testCase{
		{"Discovery", discoverResources},
		{"PreferredResources", preferredResources},
		{"RESTMapper", restMapper},
		{"MemoryCache", memoryCache},
		{"DiskCache", diskCache},
		{"OpenAPIV3", openAPIV3},
		{"OpenAPIV2", openAPIV2},
		{"Version", version},
	})
}

// discoverResources compares aggregated discovery with the documents of each group version. Cases that run in parallel
// define resources between the two requests; their groups are left out.
func discoverResources(t *testing.T, c *cluster) {
	aggregated := discovery.NewDiscoveryClientForConfigOrDie(c.config)
	groups, lists, err := aggregated.ServerGroupsAndResources()
	must(t, err)
	unaggregated := discovery.NewDiscoveryClientForConfigOrDie(c.config).WithLegacy()
	legacyGroups, legacyLists, err := unaggregated.ServerGroupsAndResources()
	must(t, err)
	if got, want := withoutCases(groupVersions(groups)), withoutCases(groupVersions(legacyGroups)); !slices.Equal(got, want) {
		t.Errorf("group versions\naggregated %q\n    legacy %q", got, want)
	}
	// Legacy discovery lists subresources of their own, aggregated discovery nests them; the client flattens both.
	if got, want := withoutCases(resourceNames(lists)), withoutCases(resourceNames(legacyLists)); !slices.Equal(got, want) {
		t.Errorf("resources\naggregated %q\n    legacy %q", got, want)
	}
	for _, want := range []string{
		"v1 pods Pod true", "v1 pods/status Pod true", "v1 nodes Node false", "v1 pods/eviction policy/v1 Eviction true",
		"apps/v1 deployments/scale autoscaling/v1 Scale true", "v1 serviceaccounts/token authentication.k8s.io/v1 TokenRequest true",
	} {
		if !slices.Contains(resourceNames(lists), want) {
			t.Errorf("no resource %q", want)
		}
	}
	enabled, err := discovery.IsResourceEnabled(aggregated, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	must(t, err)
	if !enabled {
		t.Error("deployments are not enabled")
	}
}

// withoutCases drops the names that begin with a group that a case defines.
func withoutCases(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, "case-") })
}

func preferredResources(t *testing.T, c *cluster) {
	client := discovery.NewDiscoveryClientForConfigOrDie(c.config)
	lists, err := client.ServerPreferredNamespacedResources()
	must(t, err)
	deletable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "delete"}}, lists)
	resources, err := discovery.GroupVersionResources(deletable)
	must(t, err)
	for _, want := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"},
		{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	} {
		if _, found := resources[want]; !found {
			t.Errorf("%v is not among the preferred resources", want)
		}
	}
}

func restMapper(t *testing.T, c *cluster) {
	definition := c.createDefinition(t)
	group, plural := definition.Spec.Group, definition.Spec.Names.Plural
	client := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(c.config))
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(client)
	mapper := restmapper.NewShortcutExpander(deferred, client, func(warning string) { t.Log(warning) })
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: "Widget"})
	must(t, err)
	if mapping.Resource.Resource != plural || mapping.Resource.Version != "v1" || mapping.Scope.Name() != "namespace" {
		t.Errorf("mapping %+v", mapping)
	}
	for short, want := range map[string]schema.GroupVersionResource{
		"deploy": {Group: "apps", Version: "v1", Resource: "deployments"},
		"cm":     {Version: "v1", Resource: "configmaps"},
		"no":     {Version: "v1", Resource: "nodes"},
	} {
		got, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: short})
		must(t, err)
		if got != want {
			t.Errorf("%s is %v", short, got)
		}
	}
	expanded, _ := restmapper.NewDiscoveryCategoryExpander(client).Expand("all")
	if !slices.Contains(expanded, schema.GroupResource{Group: "apps", Resource: "deployments"}) ||
		!slices.Contains(expanded, schema.GroupResource{Resource: "pods"}) {
		t.Errorf("category all: %v", expanded)
	}
}

func memoryCache(t *testing.T, c *cluster) {
	config, requests := countRequests(c.config, func(request *http.Request) bool { return strings.HasPrefix(request.URL.Path, "/api") })
	client := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))
	_, _, err := client.ServerGroupsAndResources()
	must(t, err)
	first := requests.Load()
	if first != 2 {
		t.Errorf("aggregated discovery took %d requests, want 2", first)
	}
	_, err = client.ServerResourcesForGroupVersion("apps/v1")
	must(t, err)
	if requests.Load() != first {
		t.Errorf("%d requests, although all is cached", requests.Load()-first)
	}
	definition := c.createDefinition(t)
	await(c.ctx, t, "discovery of the new group", func() error {
		client.Invalidate()
		_, err := client.ServerResourcesForGroupVersion(definition.Spec.Group + "/v1")
		return err
	})
}

func diskCache(t *testing.T, c *cluster) {
	config, requests := countRequests(c.config, func(request *http.Request) bool { return strings.HasPrefix(request.URL.Path, "/api") })
	unmodified := new(atomic.Int64)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusNotModified {
				unmodified.Add(1)
			}
			return response, err
		})
	})
	discoveryDir, httpDir := t.TempDir(), t.TempDir()
	newClient := func() *disk.CachedDiscoveryClient {
		client, err := disk.NewCachedDiscoveryClientForConfig(config, discoveryDir, httpDir, time.Minute)
		must(t, err)
		return client
	}
	_, lists, err := newClient().ServerGroupsAndResources()
	must(t, err)
	requests.Store(0)
	_, cached, err := newClient().ServerGroupsAndResources()
	must(t, err)
	if requests.Load() != 0 || !slices.Equal(resourceNames(cached), resourceNames(lists)) {
		t.Errorf("%d requests with a cache on disk; %d of %d resources", requests.Load(), len(resourceNames(cached)), len(resourceNames(lists)))
	}
	// The HTTP cache revalidates by ETag. Repeated, because another case may have added a resource, which changes the ETag.
	client := newClient()
	await(c.ctx, t, "revalidation", func() error {
		client.Invalidate()
		_, err := client.ServerGroups()
		if err == nil && unmodified.Load() == 0 {
			err = errors.New("no response has the status 304")
		}
		return err
	})
}

func openAPIV3(t *testing.T, c *cluster) {
	definition := c.createDefinition(t)
	client := openapi.NewClient(discovery.NewDiscoveryClientForConfigOrDie(c.config).RESTClient())
	root := openapi3.NewRoot(client)
	versions, err := root.GroupVersions()
	must(t, err)
	if !slices.Contains(versions, schema.GroupVersion{Group: "apps", Version: "v1"}) {
		t.Errorf("group versions %v", versions)
	}
	document, err := root.GVSpec(schema.GroupVersion{Group: "apps", Version: "v1"})
	must(t, err)
	deployment := document.Components.Schemas["io.k8s.api.apps.v1.Deployment"]
	if deployment == nil || len(deployment.Properties) != 5 {
		t.Fatalf("schema of deployments: %+v", deployment)
	}
	kinds := fmt.Sprint(deployment.Extensions["x-kubernetes-group-version-kind"])
	if !strings.Contains(kinds, "Deployment") {
		t.Errorf("group version kinds of deployments: %s", kinds)
	}
	await(c.ctx, t, "the document of the custom group", func() error {
		document, err := root.GVSpec(schema.GroupVersion{Group: definition.Spec.Group, Version: "v1"})
		if err != nil {
			return err
		}
		for name, found := range document.Components.Schemas {
			if strings.HasSuffix(name, ".Widget") && found.Properties["spec"].Properties["size"].Type.Contains("integer") {
				return nil
			}
		}
		return fmt.Errorf("no schema of Widget with spec.size in %d schemas", len(document.Components.Schemas))
	})
	paths, err := client.Paths()
	must(t, err)
	protobuf, err := paths["apis/apps/v1"].Schema("application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
	must(t, err)
	if len(protobuf) == 0 || protobuf[0] == '{' {
		t.Error("the document of apps/v1 is not protobuf")
	}
}

func openAPIV2(t *testing.T, c *cluster) {
	document, err := discovery.NewDiscoveryClientForConfigOrDie(c.config).OpenAPISchema()
	must(t, err)
	for _, definition := range document.GetDefinitions().GetAdditionalProperties() {
		if definition.GetName() == "io.k8s.api.core.v1.Pod" {
			return
		}
	}
	t.Error("no definition of pods")
}

func version(t *testing.T, c *cluster) {
	info, err := discovery.NewDiscoveryClientForConfigOrDie(c.config).ServerVersion()
	must(t, err)
	if info.Major != "1" || info.Minor != "36" || !strings.HasPrefix(info.GitVersion, "v1.36.") {
		t.Errorf("version %+v", info)
	}
}

// groupVersions returns the versions of groups, sorted.
func groupVersions(groups []*metav1.APIGroup) []string {
	var versions []string
	for _, group := range groups {
		for _, version := range group.Versions {
			preferred := ""
			if version == group.PreferredVersion {
				preferred = " preferred"
			}
			versions = append(versions, version.GroupVersion+preferred)
		}
	}
	slices.Sort(versions)
	return versions
}

// resourceNames returns a line for each resource that no case of this package defines, sorted.
func resourceNames(lists []*metav1.APIResourceList) []string {
	var names []string
	for _, list := range lists {
		if strings.Contains(list.GroupVersion, ".example.com/") {
			continue
		}
		for _, resource := range list.APIResources {
			kind := resource.Kind
			if resource.Version != "" && (schema.GroupVersion{Group: resource.Group, Version: resource.Version}).String() != list.GroupVersion {
				kind = (schema.GroupVersion{Group: resource.Group, Version: resource.Version}).String() + " " + kind
			}
			names = append(names, fmt.Sprint(list.GroupVersion, " ", resource.Name, " ", kind, " ", resource.Namespaced))
		}
	}
	slices.Sort(names)
	return names
}

// createDefinition defines namespaced Widgets with an integer at spec.size, a status and a scale, in a group of
// their own, and waits until they are served.
func (c *cluster) createDefinition(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	integer := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	group := c.namespace + ".example.com"
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"size": integer, "color": {Type: "string"},
						}},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": integer}},
					},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.size", StatusReplicasPath: ".status.size"},
				},
			}},
		},
	}
	client, err := apiextensions.NewForConfig(c.config)
	must(t, err)
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	definition, err = definitions.Create(c.ctx, definition, metav1.CreateOptions{})
	must(t, err)
	await(c.ctx, t, "the definition is established", func() error {
		definition, err = definitions.Get(c.ctx, definition.Name, metav1.GetOptions{})
		must(t, err)
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", definition.Status.Conditions)
	})
	return definition
}

// countRequests returns a copy of config, and the number of requests made with it that match.
func countRequests(config *rest.Config, matches func(*http.Request) bool) (*rest.Config, *atomic.Int64) {
	counted, count := rest.CopyConfig(config), new(atomic.Int64)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if matches(request) {
				count.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	return counted, count
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
