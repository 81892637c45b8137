// Errors as client-go's predicates classify them, timeouts of both sides, and the limit of request bodies.
package clientgo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

func TestErrors(t *testing.T) {
	runCases(t, []testCase{
		{"AlreadyExists", alreadyExists},
		{"NotFound", notFound},
		{"Conflict", conflict},
		{"Preconditions", preconditions},
		{"Invalid", invalidWithCauses},
		{"InvalidOptions", invalidOptions},
		{"BadRequest", badRequest},
		{"StrictFieldValidation", strictFieldValidation},
		{"ApplyConflict", applyConflict},
		{"NamespaceTerminating", namespaceTerminating},
		{"Negotiation", negotiation},
		{"TooLargeResourceVersion", tooLargeResourceVersion},
		{"ServerSideTimeout", serverSideTimeout},
		{"ClientSideTimeout", clientSideTimeout},
		{"Unauthorized", unauthorized},
		{"BodyLimit", bodyLimit},
		{"TypedBodyLimit", typedBodyLimit},
		{"ObjectLimit", objectLimit},
	})
}

func alreadyExists(t *testing.T, c *cluster) {
	c.createConfigMap(t, "a", "1")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	_, err := c.client.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, object, metav1.CreateOptions{})
	mustBe(t, "AlreadyExists", apierrors.IsAlreadyExists, err)
	checkMessage(t, err, `configmaps "a" already exists`)
	_, err = c.client.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	mustBe(t, "AlreadyExists", apierrors.IsAlreadyExists, err)
}

func notFound(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	_, err := configMaps.Get(c.ctx, "absent", metav1.GetOptions{})
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
	checkMessage(t, err, `configmaps "absent" not found`)
	details := statusOf(t, err).Details
	if details.Name != "absent" || details.Kind != "configmaps" {
		t.Errorf("details: %+v", details)
	}
	mustBe(t, "NotFound", apierrors.IsNotFound, configMaps.Delete(c.ctx, "absent", metav1.DeleteOptions{}))
	_, err = configMaps.Update(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "absent"}}, metav1.UpdateOptions{})
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
	_, err = configMaps.Patch(c.ctx, "absent", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
	_, err = c.client.CoreV1().ConfigMaps("absent").Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
	checkMessage(t, err, `namespaces "absent" not found`)

	err = c.client.CoreV1().RESTClient().Get().AbsPath("/apis/absent.example.com/v1/things").Do(c.ctx).Error()
	mustBe(t, "NotFound", apierrors.IsNotFound, err)
	checkMessage(t, err, "the server could not find the requested resource")
}

func conflict(t *testing.T, c *cluster) {
	stale := c.createConfigMap(t, "a", "1")
	c.setConfigMap(t, "a", "2")
	stale.Data["value"] = "3"
	_, err := c.client.CoreV1().ConfigMaps(c.namespace).Update(c.ctx, stale, metav1.UpdateOptions{})
	mustBe(t, "Conflict", apierrors.IsConflict, err)
	checkMessage(t, err, `Operation cannot be fulfilled on configmaps "a": the object has been modified; `+
		`please apply your changes to the latest version and try again`)
	// A patch that carries a version is as strict as an update.
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"value":"3"}}`, stale.ResourceVersion)
	_, err = c.client.CoreV1().ConfigMaps(c.namespace).Patch(c.ctx, "a", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	mustBe(t, "Conflict", apierrors.IsConflict, err)
}

func preconditions(t *testing.T, c *cluster) {
	first := c.createConfigMap(t, "a", "1")
	c.deleteConfigMap(t, "a")
	second := c.createConfigMap(t, "a", "1")
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	err := configMaps.Delete(c.ctx, "a", *metav1.NewPreconditionDeleteOptions(string(first.UID)))
	mustBe(t, "Conflict", apierrors.IsConflict, err)
	err = configMaps.Delete(c.ctx, "a", *metav1.NewRVDeletionPrecondition(first.ResourceVersion))
	mustBe(t, "Conflict", apierrors.IsConflict, err)
	must(t, configMaps.Delete(c.ctx, "a", *metav1.NewPreconditionDeleteOptions(string(second.UID))))
}

func invalidWithCauses(t *testing.T, c *cluster) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "Not_A_Name", Labels: map[string]string{"bad label": "x"}},
		Spec: corev1.PodSpec{
			RestartPolicy: "Sometimes",
			Containers:    []corev1.Container{{Name: "a"}, {Name: "a", Image: "i"}},
		},
	}
	_, err := c.client.CoreV1().Pods(c.namespace).Create(c.ctx, pod, metav1.CreateOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
	var got []string
	for _, cause := range statusOf(t, err).Details.Causes {
		got = append(got, fmt.Sprintf("%s %s", cause.Field, cause.Type))
	}
	slices.Sort(got)
	want := []string{
		"metadata.labels FieldValueInvalid",
		"metadata.name FieldValueInvalid",
		"spec.containers[0].image FieldValueRequired",
		"spec.containers[1].name FieldValueDuplicate",
		"spec.restartPolicy FieldValueNotSupported",
	}
	if !slices.Equal(got, want) {
		t.Errorf("causes\n got %q\nwant %q\n%v", got, want, err)
	}
	details := statusOf(t, err).Details
	if details.Kind != "Pod" || details.Name != "Not_A_Name" {
		t.Errorf("details: %+v", details)
	}
	if !apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueDuplicate) {
		t.Error("HasStatusCause does not find FieldValueDuplicate")
	}

	// What may not change is refused on update.
	secret, err := c.client.CoreV1().Secrets(c.namespace).Create(c.ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Type: "a/b"}, metav1.CreateOptions{})
	must(t, err)
	secret.Type = "c/d"
	_, err = c.client.CoreV1().Secrets(c.namespace).Update(c.ctx, secret, metav1.UpdateOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
	checkMessage(t, err, `Secret "s" is invalid: type: Invalid value: "c/d": field is immutable`)
}

func invalidOptions(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	_, err := configMaps.Create(c.ctx, object, metav1.CreateOptions{DryRun: []string{"Some"}})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
	if cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueNotSupported); !ok || cause.Field != "dryRun" {
		t.Errorf("causes of an unknown dry run: %v", err)
	}
	_, err = configMaps.List(c.ctx, metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
	_, err = configMaps.Patch(c.ctx, "a", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`), metav1.PatchOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
	checkMessage(t, err, `PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch`)
}

func badRequest(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	_, err := configMaps.List(c.ctx, metav1.ListOptions{LabelSelector: "a in"})
	mustBe(t, "BadRequest", apierrors.IsBadRequest, err)
	_, err = configMaps.List(c.ctx, metav1.ListOptions{FieldSelector: "data.value=1"})
	mustBe(t, "BadRequest", apierrors.IsBadRequest, err)
	_, err = configMaps.List(c.ctx, metav1.ListOptions{ResourceVersion: "abc"})
	mustBe(t, "BadRequest", apierrors.IsBadRequest, err)
	_, err = configMaps.List(c.ctx, metav1.ListOptions{Limit: 1, Continue: "no token"})
	mustBe(t, "BadRequest", apierrors.IsBadRequest, err)
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}
	_, err = configMaps.Create(c.ctx, other, metav1.CreateOptions{})
	mustBe(t, "BadRequest", apierrors.IsBadRequest, err)
	checkMessage(t, err, "the namespace of the provided object does not match the namespace sent on the request")
	c.createConfigMap(t, "a", "1")
	_, err = configMaps.Patch(c.ctx, "a", types.MergePatchType, []byte(`{`), metav1.PatchOptions{})
	mustBe(t, "BadRequest", apierrors.IsBadRequest, err)
}

func strictFieldValidation(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().RESTClient()
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"dota":{"a":"b"}}`)
	post := func(validation string) rest.Result {
		return configMaps.Post().Namespace(c.namespace).Resource("configmaps").Param("fieldValidation", validation).
			SetHeader("Content-Type", "application/json").Body(body).Do(c.ctx)
	}
	err := post("Strict").Error()
	mustBe(t, "BadRequest", apierrors.IsBadRequest, err)
	if !strings.Contains(err.Error(), `strict decoding error: unknown field "dota"`) {
		t.Errorf("want a strict decoding error, got %v", err)
	}
	result := post("Warn")
	must(t, result.Error())
	if warnings := result.Warnings(); len(warnings) != 1 || warnings[0].Text != `unknown field "dota"` {
		t.Errorf("warnings: %+v", warnings)
	}
}

func applyConflict(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	apply := func(manager, value string, force bool) error {
		configuration := applycorev1.ConfigMap("a", c.namespace).WithData(map[string]string{"value": value})
		_, err := configMaps.Apply(c.ctx, configuration, metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	must(t, apply("first", "1", false))
	err := apply("second", "2", false)
	mustBe(t, "Conflict", apierrors.IsConflict, err)
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldManagerConflict)
	if !ok || cause.Field != ".data.value" || cause.Message != `conflict with "first"` {
		t.Errorf("cause %+v of %v", cause, err)
	}
	must(t, apply("second", "2", true))
}

func namespaceTerminating(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	held, err := configMaps.Create(c.ctx, held, metav1.CreateOptions{})
	must(t, err)
	must(t, c.client.CoreV1().Namespaces().Delete(c.ctx, c.namespace, metav1.DeleteOptions{}))
	_, err = configMaps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	mustBe(t, "Forbidden", apierrors.IsForbidden, err)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("no cause %s: %v", corev1.NamespaceTerminatingCause, err)
	}
	_, err = configMaps.Patch(c.ctx, "held", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	must(t, err)
	await(c.ctx, t, "the namespace is deleted", func() error {
		_, err := c.client.CoreV1().Namespaces().Get(c.ctx, c.namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there (%v)", err)
	})
}

func negotiation(t *testing.T, c *cluster) {
	client := c.client.CoreV1().RESTClient()
	configMaps := "/api/v1/namespaces/" + c.namespace + "/configmaps"
	err := client.Get().AbsPath(configMaps).SetHeader("Accept", "application/xml").Do(c.ctx).Error()
	mustBe(t, "NotAcceptable", apierrors.IsNotAcceptable, err)
	err = client.Post().AbsPath(configMaps).SetHeader("Content-Type", "application/xml").Body([]byte("<a/>")).Do(c.ctx).Error()
	mustBe(t, "UnsupportedMediaType", apierrors.IsUnsupportedMediaType, err)
	err = client.Put().AbsPath(configMaps).Body([]byte("{}")).Do(c.ctx).Error()
	mustBe(t, "MethodNotSupported", apierrors.IsMethodNotSupported, err)
}

func tooLargeResourceVersion(t *testing.T, c *cluster) {
	// Without MaxRetries the client would try ten times, a second after each answer.
	options := &metav1.ListOptions{ResourceVersion: "1000000000", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	err := c.client.CoreV1().RESTClient().Get().Namespace(c.namespace).Resource("configmaps").
		VersionedParams(options, scheme.ParameterCodec).MaxRetries(0).Do(c.ctx).Error()
	mustBe(t, "Timeout", apierrors.IsTimeout, err)
	if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("no cause %s: %v", metav1.CauseTypeResourceVersionTooLarge, err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
		t.Errorf("suggested delay: %d, %v", seconds, ok)
	}
}

// serverSideTimeout lists at a version that is not reached, with a timeout below the 3 s that the server waits.
func serverSideTimeout(t *testing.T, c *cluster) {
	client := c.client.CoreV1().RESTClient()
	list := func(timeout string) error {
		return client.Get().AbsPath("/api/v1/namespaces/"+c.namespace+"/configmaps").Param("timeout", timeout).
			Param("resourceVersion", "1000000000").Param("resourceVersionMatch", "NotOlderThan").Do(c.ctx).Error()
	}
	err := list("100ms")
	mustBe(t, "Timeout", apierrors.IsTimeout, err)
	// The server gives this cause when its own wait ends.
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("the request did not end by its own timeout: %v", err)
	}
	mustBe(t, "BadRequest", apierrors.IsBadRequest, list("soon"))

	// The timeout of a watch ends it without an error.
	start := time.Now()
	watcher, err := c.client.CoreV1().ConfigMaps(c.namespace).Watch(c.ctx, metav1.ListOptions{TimeoutSeconds: new(int64(1))})
	must(t, err)
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type != "ADDED" {
			t.Errorf("unexpected event %s %v", event.Type, event.Object)
		}
	}
	must(t, c.ctx.Err())
	if elapsed := time.Since(start); elapsed < 500*time.Millisecond {
		t.Errorf("the watch ended after %v", elapsed)
	}
}

func clientSideTimeout(t *testing.T, c *cluster) {
	options := metav1.ListOptions{ResourceVersion: "1000000000", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
	defer cancel()
	_, err := c.client.CoreV1().ConfigMaps(c.namespace).List(ctx, options)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want a deadline exceeded, got %v", err)
	}
	config := rest.CopyConfig(c.config)
	config.Timeout = 100 * time.Millisecond
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(c.namespace).List(c.ctx, options)
	if err == nil || !utilnet.IsTimeout(err) && !apierrors.IsTimeout(err) {
		t.Errorf("want a timeout, got %v", err)
	}
	// The connection that both requests used still works.
	c.createConfigMap(t, "after", "1")
}

func unauthorized(t *testing.T, c *cluster) {
	config := rest.AnonymousClientConfig(c.config)
	config.ContentType = c.encoding
	config.BearerToken = "not a token"
	_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(c.namespace).List(c.ctx, metav1.ListOptions{})
	mustBe(t, "Unauthorized", apierrors.IsUnauthorized, err)
}

// bodyLimit pads a small object with spaces up to and beyond the 3 MiB that a request may have.
func bodyLimit(t *testing.T, c *cluster) {
	const limit = 3 * 1024 * 1024
	client := c.client.CoreV1().RESTClient()
	post := func(name string, size int) error {
		object := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
		object = append(object, bytes.Repeat([]byte(" "), size-len(object))...)
		return client.Post().AbsPath("/api/v1/namespaces/"+c.namespace+"/configmaps").
			SetHeader("Content-Type", "application/json").Body(object).Do(c.ctx).Error()
	}
	must(t, post("at-limit", limit))
	for _, size := range []int{limit + 1, 2 * limit} {
		err := post("above", size)
		mustBe(t, "RequestEntityTooLarge", apierrors.IsRequestEntityTooLargeError, err)
		checkMessage(t, err, fmt.Sprintf("Request entity too large: limit is %d", limit))
	}
	patch := append([]byte(`{"data":{}}`), bytes.Repeat([]byte(" "), limit)...)
	_, err := c.client.CoreV1().ConfigMaps(c.namespace).Patch(c.ctx, "at-limit", types.MergePatchType, patch, metav1.PatchOptions{})
	mustBe(t, "RequestEntityTooLarge", apierrors.IsRequestEntityTooLargeError, err)
}

// typedBodyLimit creates pods of nearly 3 MiB and of more by the typed client. They are dry runs: etcd stores half as
// much.
func typedBodyLimit(t *testing.T, c *cluster) {
	const limit = 3 * 1024 * 1024
	create := func(size int) (*corev1.Pod, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i",
			Env: []corev1.EnvVar{{Name: "V", Value: strings.Repeat("x", size)}}}}
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		return c.client.CoreV1().Pods(c.namespace).Create(c.ctx, pod, options)
	}
	const below = limit - 4096
	created, err := create(below)
	must(t, err)
	if size := len(created.Spec.Containers[0].Env[0].Value); size != below {
		t.Errorf("the pod came back with %d bytes, not %d", size, below)
	}
	_, err = create(limit)
	mustBe(t, "RequestEntityTooLarge", apierrors.IsRequestEntityTooLargeError, err)
	checkMessage(t, err, fmt.Sprintf("Request entity too large: limit is %d", limit))
}

// objectLimit writes config maps around the 1 MiB that their data may have.
func objectLimit(t *testing.T, c *cluster) {
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	object.Data = map[string]string{"v": strings.Repeat("x", 1024*1024)}
	created, err := configMaps.Create(c.ctx, object, metav1.CreateOptions{})
	must(t, err)
	read, err := configMaps.Get(c.ctx, "large", metav1.GetOptions{})
	must(t, err)
	if read.ResourceVersion != created.ResourceVersion || len(read.Data["v"]) != 1024*1024 {
		t.Errorf("read version %s with %d bytes", read.ResourceVersion, len(read.Data["v"]))
	}
	object.Name, object.Data["v"] = "larger", object.Data["v"]+"x"
	_, err = configMaps.Create(c.ctx, object, metav1.CreateOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
	if !apierrors.HasStatusCause(err, metav1.CauseTypeTooLong) && !strings.Contains(err.Error(), "Too long") {
		t.Errorf("want a cause that the data is too long, got %v", err)
	}
}

// checkMessage compares the message of an API error.
func checkMessage(t testing.TB, err error, want string) {
	t.Helper()
	if got := statusOf(t, err).Message; got != want {
		t.Errorf("message\n got %s\nwant %s", got, want)
	}
}

// statusOf returns the Status of an API error.
func statusOf(t testing.TB, err error) metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("not an API error: %T %v", err, err)
	}
	if status.Status().Code < http.StatusBadRequest {
		t.Errorf("code %d", status.Status().Code)
	}
	return status.Status()
}
