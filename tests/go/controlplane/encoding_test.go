package controlplane

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// exchange is a request and the head of its response.
type exchange struct {
	component, method, path string
	// sent and received are the content types of the bodies.
	sent, received           string
	acceptEncoding, encoding string
	status                   int
	isWatch                  bool
}

// String describes the exchange in a message.
func (e exchange) String() string {
	return fmt.Sprintf("%s: %s %s (%s): %d %s", e.component, e.method, e.path, e.sent, e.status, e.received)
}

// recorder is a reverse proxy in front of the server that records exchanges. It has the administrator's credentials.
type recorder struct {
	server *httptest.Server

	mutex     sync.Mutex
	exchanges []exchange
	failures  []error
}

// startRecorder starts a recorder that forwards requests with config. The end of the test stops it.
func startRecorder(t *testing.T, config *rest.Config) *recorder {
	t.Helper()
	target := must(url.Parse(config.Host))(t)
	tls := must(rest.TLSConfigFor(config))(t)
	// The transport of the proxy must not ask for compression by itself.
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, DisableCompression: true}
	r := &recorder{}
	r.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: r.record,
		ErrorHandler:   r.fail,
	})
	r.server.EnableHTTP2 = true
	r.server.StartTLS()
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
		transport.CloseIdleConnections()
	})
	return r
}

func (r *recorder) record(response *http.Response) error {
	request := response.Request
	component, _, _ := strings.Cut(request.UserAgent(), "/")
	watch := request.URL.Query().Get("watch")
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.exchanges = append(r.exchanges, exchange{
		component: component, method: request.Method, path: request.URL.Path,
		sent: request.Header.Get("Content-Type"), received: response.Header.Get("Content-Type"),
		acceptEncoding: request.Header.Get("Accept-Encoding"), encoding: response.Header.Get("Content-Encoding"),
		status: response.StatusCode, isWatch: watch == "true" || watch == "1",
	})
	return nil
}

func (r *recorder) fail(writer http.ResponseWriter, _ *http.Request, err error) {
	// A client that ends a watch cancels its request.
	if !errors.Is(err, context.Canceled) {
		r.mutex.Lock()
		r.failures = append(r.failures, err)
		r.mutex.Unlock()
	}
	writer.WriteHeader(http.StatusBadGateway)
}

// recorded returns the exchanges so far.
func (r *recorder) recorded(t *testing.T) []exchange {
	t.Helper()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, failure := range r.failures {
		t.Errorf("the recorder cannot forward a request: %v", failure)
	}
	return append([]exchange(nil), r.exchanges...)
}

// kubeconfig writes a kubeconfig of the recorder, without credentials, and returns its path.
func (r *recorder) kubeconfig(t *testing.T) string {
	t.Helper()
	const name = "recorder"
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: r.server.URL, CertificateAuthorityData: certificate}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatalf("write a kubeconfig: %v", err)
	}
	return path
}

// TestEncodings records what the components exchange with the server during a rollout. Both speak protobuf, and turn
// compression off, so that no response is compressed.
func TestEncodings(t *testing.T) {
	p := startServer(t, embedded)
	recorder := startRecorder(t, p.config)
	p.startComponents(t, recorder.kubeconfig(t))
	kubelet, stop := startKubelet(t, p.config)
	defer stop()
	kubelet.addNode(t, "node-0", "")
	s := &scenario{T: t, plane: p, kubelet: kubelet}
	s.namespace = s.makeNamespace("encodings-")
	testDeployment(s)
	recorded := recorder.recorded(t)
	checkLogs(t, p, "rollout behind a proxy")
	for _, component := range []string{"kube-controller-manager", "kube-scheduler"} {
		checkEncodings(t, component, recorded)
	}
}

// checkEncodings judges the exchanges of a component.
func checkEncodings(t *testing.T, component string, exchanges []exchange) {
	t.Helper()
	var watches, reads, writes int
	for _, e := range exchanges {
		if e.component != component {
			continue
		}
		if e.acceptEncoding != "" {
			t.Errorf("%s: the client accepts the encoding %q", e, e.acceptEncoding)
		}
		if e.encoding != "" {
			t.Errorf("%s: the response has the encoding %q", e, e.encoding)
		}
		if !isResource(e.path) {
			continue
		}
		want := runtime.ContentTypeProtobuf
		switch {
		case e.isWatch:
			watches++
			want += ";stream=watch"
		case e.method == http.MethodGet:
			reads++
		default:
			writes++
		}
		if e.isWatch && e.status != http.StatusOK {
			want = runtime.ContentTypeProtobuf
		}
		if e.received != want {
			t.Errorf("%s: the response is not %s", e, want)
		}
		if (e.method == http.MethodPost || e.method == http.MethodPut) && e.sent != runtime.ContentTypeProtobuf {
			t.Errorf("%s: the request is not %s", e, runtime.ContentTypeProtobuf)
		}
	}
	if watches == 0 || reads == 0 || writes == 0 {
		t.Errorf("%s: %d watches, %d other reads and %d writes", component, watches, reads, writes)
	}
	results.fact(component+" in protobuf, not compressed", "%d watches, %d other reads, %d writes", watches, reads, writes)
}

// isResource returns true for the path of a resource, and false for those of discovery, health and the version.
func isResource(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "api" && len(parts) > 2 || parts[0] == "apis" && len(parts) > 3
}
