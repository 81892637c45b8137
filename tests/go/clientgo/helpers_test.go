// Package clientgo tests the server with client-go as programs use it: informers, watches, controllers,
// discovery and typed, dynamic and metadata-only clients, in JSON and in protobuf.
//
// Each file covers a subject. Its cases share a server for each back end; a case has a namespace of its own.
package clientgo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchet/tests/testserver"
)

// TestMain runs more parallel tests than there are CPUs, because most of them wait most of the time. In a process that
// a test has started as a candidate of an election it runs that instead.
func TestMain(m *testing.M) {
	if os.Getenv(candidateVariable) != "" {
		if err := candidateMain(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// caseTimeout bounds a case. Most take a few milliseconds. A client-go reflector waits up to a minute before it tries again.
const caseTimeout = 4 * time.Minute

// testCase is a named case of a file.
type testCase struct {
	name string
	run  func(t *testing.T, c *cluster)
}

// cluster is what a case works with: a server that it shares with others, and a namespace of its own.
type cluster struct {
	*testserver.Server
	backend testserver.Backend
	// encoding is the content type that config and client speak.
	encoding  string
	config    *rest.Config
	client    kubernetes.Interface
	ctx       context.Context
	namespace string
}

// encodings are the content types that the typed clients speak.
var encodings = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}

// encodingName returns a short name of a content type, for the names of subtests and namespaces.
func encodingName(contentType string) string {
	return contentType[strings.LastIndexAny(contentType, "/.")+1:]
}

// runCases runs the cases concurrently on both back ends and in both encodings, on one server for each back end.
func runCases(t *testing.T, cases []testCase, args ...string) {
	t.Helper()
	t.Parallel()
	testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
		t.Parallel()
		runCasesOn(t, testserver.Start(t, backend, args...), backend, encodings, cases)
	})
}

// runCasesOn runs the cases concurrently on a server, in each of the encodings, and returns when they have ended.
func runCasesOn(t *testing.T, server *testserver.Server, backend testserver.Backend, encodings []string, cases []testCase) {
	t.Helper()
	t.Run("cases", func(t *testing.T) {
		for _, encoding := range encodings {
			for _, testCase := range cases {
				t.Run(testCase.name+"/"+encodingName(encoding), func(t *testing.T) {
					t.Parallel()
					testCase.run(t, newCluster(t, server, backend, encoding))
				})
			}
		}
	})
}

// newCluster returns a client of the server that speaks the encoding, and makes a namespace for it.
func newCluster(t *testing.T, server *testserver.Server, backend testserver.Backend, encoding string) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	t.Cleanup(cancel)
	config := server.Config()
	config.ContentType = encoding
	c := &cluster{Server: server, backend: backend, encoding: encoding, config: config, ctx: ctx}
	c.client = kubernetes.NewForConfigOrDie(config)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "case-"}}
	created, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	must(t, err)
	c.namespace = created.Name
	return c
}

// createConfigMap creates a config map with a label, and one key that holds value.
func (c *cluster) createConfigMap(t testing.TB, name, value string) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
	created, err := c.client.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, object, metav1.CreateOptions{})
	must(t, err)
	return created
}

// setConfigMap sets the label and the key that createConfigMap made, with the resourceVersion it reads first.
func (c *cluster) setConfigMap(t testing.TB, name, value string) *corev1.ConfigMap {
	t.Helper()
	configMaps := c.client.CoreV1().ConfigMaps(c.namespace)
	object, err := configMaps.Get(c.ctx, name, metav1.GetOptions{})
	must(t, err)
	object.Labels = map[string]string{"value": value}
	object.Data = map[string]string{"value": value}
	updated, err := configMaps.Update(c.ctx, object, metav1.UpdateOptions{})
	must(t, err)
	return updated
}

// deleteConfigMap deletes a config map.
func (c *cluster) deleteConfigMap(t testing.TB, name string) {
	t.Helper()
	must(t, c.client.CoreV1().ConfigMaps(c.namespace).Delete(c.ctx, name, metav1.DeleteOptions{}))
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v%s", err, causes(err))
	}
}

// causes returns the causes of an API error, one a line.
func causes(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	var text strings.Builder
	for _, cause := range status.Status().Details.Causes {
		fmt.Fprintf(&text, "\n  %s: %s: %s", cause.Field, cause.Type, cause.Message)
	}
	return text.String()
}

// mustBe ends the test if an error is not the one that is checks for.
func mustBe(t testing.TB, what string, is func(error) bool, err error) {
	t.Helper()
	if err == nil || !is(err) {
		t.Fatalf("want an error that is %s, got %T %v", what, err, err)
	}
}

// await polls until the condition returns no error, and ends the test with the last one if the case's time ends.
func await(ctx context.Context, t testing.TB, what string, condition func() error) {
	t.Helper()
	awaitEvery(ctx, t, 5*time.Millisecond, what, condition)
}

// awaitEvery is await with another period than 5 ms.
func awaitEvery(ctx context.Context, t testing.TB, period time.Duration, what string, condition func() error) {
	t.Helper()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}
