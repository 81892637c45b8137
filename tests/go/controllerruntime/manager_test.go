package controllerruntime

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"watchet/tests/testserver"
)

const (
	finalizer = "shop.example.com/secret"
	seen      = "shop.example.com/seen"
	byColour  = "data.colour"
)

var inShop = map[string]string{"app": "shop"}

var options = controller.Options{SkipNameValidation: ptr.To(true)}

func newManager(t *testing.T, config *rest.Config, options ctrl.Options) manager.Manager {
	t.Helper()
	if options.Metrics.BindAddress == "" {
		options.Metrics.BindAddress = "0"
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

// secretsOfShops makes a Secret for each ConfigMap of the shop, owned by it, and deletes it before the
// ConfigMap goes.
func secretsOfShops(c client.Client) reconcile.Func {
	return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		var owner corev1.ConfigMap
		if err := c.Get(ctx, request.NamespacedName, &owner); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}
		if !owner.DeletionTimestamp.IsZero() {
			if err := c.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, err
			}
			controllerutil.RemoveFinalizer(&owner, finalizer)
			return reconcile.Result{}, client.IgnoreNotFound(c.Update(ctx, &owner))
		}
		if controllerutil.AddFinalizer(&owner, finalizer) {
			return reconcile.Result{}, c.Update(ctx, &owner)
		}
		_, err := controllerutil.CreateOrUpdate(ctx, c, secret, func() error {
			secret.Labels = inShop
			secret.StringData = map[string]string{"colour": owner.Data["colour"]}
			return controllerutil.SetControllerReference(&owner, secret, c.Scheme())
		})
		return reconcile.Result{}, err
	}
}

// marksSecrets annotates Secrets, of which it caches the metadata only.
func marksSecrets(c client.Client) reconcile.Func {
	return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if err := c.Get(ctx, request.NamespacedName, secret); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if secret.Annotations[seen] != "" {
			return reconcile.Result{}, nil
		}
		before := secret.DeepCopy()
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, seen, "true")
		return reconcile.Result{}, client.IgnoreNotFound(c.Patch(ctx, secret, client.MergeFrom(before)))
	}
}

func TestTwoControllersOfAManager(t *testing.T) {
	t.Parallel()
	config, c := start(t, &envtest.Environment{})
	metrics := fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))
	shop := cache.ByObject{Label: labels.SelectorFromSet(inShop)}
	manager := newManager(t, config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: metrics},
		Cache:   cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: shop}},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	cached := manager.GetClient()
	err := ctrl.NewControllerManagedBy(manager).Named("shops").WithOptions(options).
		For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(secretsOfShops(cached))
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).Named("marks").WithOptions(options).
		For(&corev1.Secret{}, builder.OnlyMetadata).Complete(marksSecrets(cached))
	if err != nil {
		t.Fatal(err)
	}
	colour := func(object client.Object) []string { return []string{object.(*corev1.ConfigMap).Data["colour"]} }
	if err := manager.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, byColour, colour); err != nil {
		t.Fatal(err)
	}
	startManager(t, manager)

	red := configMap("red", inShop, map[string]string{"colour": "red"})
	blue := configMap("blue", inShop, map[string]string{"colour": "blue"})
	other := configMap("other", nil, map[string]string{"colour": "red"})
	create(t, c, red, blue, other)
	var secret corev1.Secret
	eventually(t, "both controllers have acted", func() error {
		for _, owner := range []client.Object{blue, red} {
			secret = corev1.Secret{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(owner), &secret); err != nil {
				return err
			}
			if secret.Annotations[seen] == "" {
				return fmt.Errorf("the secret %s has %v", secret.Name, secret.Annotations)
			}
		}
		return nil
	})
	if controller := metav1.GetControllerOf(&secret); controller == nil || controller.UID != red.UID {
		t.Errorf("the secret's controller is %v", controller)
	}
	readsFromCaches(t, cached, manager.GetAPIReader(), other)

	// An owned object that is deleted is made again.
	first := secret.UID
	if err := c.Delete(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the secret is made again", func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(red), &secret)
		if err == nil && secret.UID == first {
			err = fmt.Errorf("it is still there")
		}
		return err
	})
	if err := c.Delete(t.Context(), red); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the finalizer has run", func() error { return isGone(t, c, red, &secret) })
	servesMetrics(t, "http://"+metrics+"/metrics")
}

// readsFromCaches reads by selector, by index, unstructured and as metadata.
func readsFromCaches(t *testing.T, cached client.Client, direct client.Reader, other *corev1.ConfigMap) {
	t.Helper()
	key := client.ObjectKeyFromObject(other)
	if err := cached.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("what the selector does not select is in the cache: %v", err)
	}
	if err := direct.Get(t.Context(), key, &corev1.ConfigMap{}); err != nil {
		t.Errorf("it is not read directly: %v", err)
	}
	var reds corev1.ConfigMapList
	if err := cached.List(t.Context(), &reds, client.MatchingFields{byColour: "red"}); err != nil {
		t.Fatal(err)
	}
	if len(reds.Items) != 1 || reds.Items[0].Name != "red" {
		t.Errorf("by the index: %v", reds.Items)
	}
	anything := &unstructured.UnstructuredList{}
	anything.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := cached.List(t.Context(), anything, client.MatchingLabels(inShop)); err != nil {
		t.Fatal(err)
	}
	if len(anything.Items) != 2 || anything.Items[0].GetKind() != "Secret" {
		t.Errorf("unstructured: %v", anything.Items)
	}
	names := &metav1.PartialObjectMetadataList{}
	names.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := cached.List(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	if len(names.Items) != 4 {
		t.Errorf("namespaces as metadata: %v", names.Items)
	}
}

func isGone(t *testing.T, c client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
	return nil
}

func servesMetrics(t *testing.T, url string) {
	t.Helper()
	eventually(t, "the metrics count", func() error {
		response, err := http.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		for _, expected := range []string{
			// Each result is there from the start, as zero.
			`controller_runtime_reconcile_total{controller="shops",result="success"} [1-9]`,
			`controller_runtime_reconcile_total{controller="marks",result="success"} [1-9]`,
			`rest_client_requests_total{code="201"`,
		} {
			if !regexp.MustCompile(expected).Match(text) {
				return fmt.Errorf("the metrics lack %s", expected)
			}
		}
		return nil
	})
}

func TestOneOfTwoManagersLeads(t *testing.T) {
	t.Parallel()
	config, c := start(t, &envtest.Environment{})
	var leads atomic.Int32
	follow := func(id int32) manager.Manager {
		m := newManager(t, config, ctrl.Options{
			LeaderElection:                true,
			LeaderElectionID:              "shop",
			LeaderElectionNamespace:       "default",
			LeaderElectionReleaseOnCancel: true,
			LeaseDuration:                 ptr.To(15 * time.Second),
			RenewDeadline:                 ptr.To(10 * time.Second),
			RetryPeriod:                   ptr.To(200 * time.Millisecond),
		})
		err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if !leads.CompareAndSwap(0, id) {
				return fmt.Errorf("%d leads beside %d", id, leads.Load())
			}
			<-ctx.Done()
			leads.Store(0)
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first, second := follow(1), follow(2)
	stopFirst := startManager(t, first)
	<-first.Elected()
	startManager(t, second)
	awaitLeader := func(id int32) {
		t.Helper()
		eventually(t, "the right manager leads", func() error {
			if leader := leads.Load(); leader != id {
				return fmt.Errorf("%d leads instead of %d", leader, id)
			}
			return nil
		})
	}
	awaitLeader(1)
	// A second leader would return an error meanwhile.
	time.Sleep(500 * time.Millisecond)
	stopFirst()
	select {
	case <-second.Elected():
	case <-time.After(patience):
		t.Fatal("the second manager does not lead")
	}
	awaitLeader(2)
	eventually(t, "an event of each election", func() error {
		var events corev1.EventList
		if err := c.List(t.Context(), &events, client.InNamespace("default")); err != nil {
			return err
		}
		elections := 0
		for _, event := range events.Items {
			if event.InvolvedObject.Name == "shop" && strings.HasSuffix(event.Message, " became leader") {
				elections++
			}
		}
		if elections != 2 {
			return fmt.Errorf("events %v", events.Items)
		}
		return nil
	})
}
