// Custom resources as Go types of the program: a scheme of its own, a typed REST client and an informer over it.
package clientgo

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// widget is the Go type of what createDefinition defines.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   widgetSpec   `json:"spec"`
	Status widgetStatus `json:"status,omitempty"`
}

type widgetSpec struct {
	Size  int64  `json:"size"`
	Color string `json:"color,omitempty"`
}

type widgetStatus struct {
	Size int64 `json:"size,omitempty"`
}

// widgetList is a list of widgets.
type widgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []widget `json:"items"`
}

func (w *widget) deepCopy() *widget {
	copied := *w
	copied.ObjectMeta = *w.ObjectMeta.DeepCopy()
	return &copied
}

// DeepCopyObject makes widget a runtime.Object.
func (w *widget) DeepCopyObject() runtime.Object { return w.deepCopy() }

// DeepCopyObject makes widgetList a runtime.Object.
func (l *widgetList) DeepCopyObject() runtime.Object {
	copied := &widgetList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].deepCopy())
	}
	return copied
}

// widgetClient returns a REST client of widgets of the group. A case in protobuf accepts protobuf first, which custom
// resources do not have: the server answers in JSON.
func (c *cluster) widgetClient(t *testing.T, group string) *rest.RESTClient {
	t.Helper()
	version := schema.GroupVersion{Group: group, Version: "v1"}
	types := runtime.NewScheme()
	types.AddKnownTypeWithName(version.WithKind("Widget"), &widget{})
	types.AddKnownTypeWithName(version.WithKind("WidgetList"), &widgetList{})
	metav1.AddToGroupVersion(types, version)
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &version
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	if c.encoding == runtime.ContentTypeProtobuf {
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	client, err := rest.RESTClientFor(config)
	must(t, err)
	return client
}

// widgets sends requests for the widgets of a namespace.
type widgets struct {
	*cluster
	client *rest.RESTClient
}

func (w widgets) send(request *rest.Request) (*widget, error) {
	result := &widget{}
	err := request.Namespace(w.namespace).Resource("widgets").Do(w.ctx).Into(result)
	return result, err
}

func (w widgets) create(t *testing.T, name, color string) *widget {
	t.Helper()
	created, err := w.send(w.client.Post().Body(&widget{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: widgetSpec{Size: 1, Color: color}}))
	must(t, err)
	return created
}

func (w widgets) update(object *widget, subresources ...string) (*widget, error) {
	return w.send(w.client.Put().Name(object.Name).SubResource(subresources...).Body(object))
}

// typedInformer follows typed custom resources that a typed REST client creates, updates and deletes, in its store, its
// index and its handlers.
func typedInformer(t *testing.T, c *cluster) {
	client := c.widgetClient(t, c.createDefinition(t).Spec.Group)
	objects := widgets{c, client}
	objects.create(t, "before", "red")
	listWatch := cache.NewListWatchFromClient(client, "widgets", c.namespace, fields.Everything())
	informer := cache.NewSharedIndexInformer(listWatch, &widget{}, 0, cache.Indexers{
		"color": func(object any) ([]string, error) {
			typed, ok := object.(*widget)
			if !ok {
				return nil, fmt.Errorf("indexed %T", object)
			}
			return []string{typed.Spec.Color}, nil
		},
	})
	seen := observe(t, informer)
	runInformer(t, c.ctx, informer)
	awaitColor(t, c, informer, "red", "before")

	object := objects.create(t, "after", "red")
	awaitColor(t, c, informer, "red", "after", "before")
	outdated := object.deepCopy()
	object.Spec = widgetSpec{Size: 2, Color: "blue"}
	object, err := objects.update(object)
	must(t, err)
	_, err = objects.update(outdated)
	mustBe(t, "Conflict", apierrors.IsConflict, err)
	awaitColor(t, c, informer, "red", "before")
	awaitColor(t, c, informer, "blue", "after")
	object.Status.Size = 2
	object, err = objects.update(object, "status")
	must(t, err)
	must(t, client.Delete().Namespace(c.namespace).Resource("widgets").Name("before").Do(c.ctx).Error())

	awaitKinds(t, c, seen, "before", "added", "deleted")
	awaitKinds(t, c, seen, "after", "added", "updated", "updated")
	awaitColor(t, c, informer, "red")
	stored, exists, err := informer.GetIndexer().GetByKey(c.namespace + "/after")
	must(t, err)
	if !exists {
		t.Fatal("the store lacks an object")
	}
	typed := stored.(*widget)
	if typed.ResourceVersion != object.ResourceVersion || typed.UID != object.UID ||
		typed.Spec != (widgetSpec{Size: 2, Color: "blue"}) || typed.Status != (widgetStatus{Size: 2}) {
		t.Errorf("stored %+v, want %+v", typed, object)
	}
	list := &widgetList{}
	must(t, client.Get().Namespace(c.namespace).Resource("widgets").Do(c.ctx).Into(list))
	if len(list.Items) != 1 || list.Items[0].ResourceVersion != object.ResourceVersion || list.Items[0].Spec != typed.Spec {
		t.Errorf("listed %+v", list)
	}
	_, err = objects.send(client.Get().Name("before"))
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
}

// awaitColor waits until the index has exactly these names under the color.
func awaitColor(t *testing.T, c *cluster, informer cache.SharedIndexInformer, color string, want ...string) {
	t.Helper()
	await(c.ctx, t, "the index follows", func() error {
		objects, err := informer.GetIndexer().ByIndex("color", color)
		if err != nil {
			return err
		}
		var names []string
		for _, object := range objects {
			typed, ok := object.(*widget)
			if !ok {
				return errors.New("the store has an object of another type")
			}
			names = append(names, typed.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			return fmt.Errorf("%s has %q, want %q", color, names, want)
		}
		return nil
	})
}
