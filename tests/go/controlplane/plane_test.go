// Package controlplane runs the stock kube-controller-manager and kube-scheduler against the watchet binary.
//
// Both are built unchanged from their Go module and run with their default flags. Nodes and the status of pods
// are written by a fake kubelet. scripts/test-control-plane builds the programs, names them in the environment
// and runs these tests; docs/control-plane.md has the commands and a table of results.
package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startTimeout bounds the start of a program, and how long it may take to become the leader.
	startTimeout = 60 * time.Second
	// convergeTimeout bounds what controllers do without a period or a grace time of their own.
	convergeTimeout = 60 * time.Second
)

// plane is a watchet server with a stock controller manager and a stock scheduler.
type plane struct {
	// directory is watchet's data directory.
	directory string
	config    *rest.Config
	client    *kubernetes.Clientset
	dynamic   *dynamic.DynamicClient

	watchet, manager, scheduler *process
}

// backend is where watchet stores objects: a value of its --storage flag.
type backend string

const (
	embedded backend = "embedded"
	etcd     backend = "etcd"
)

// startPlane starts a control plane and returns when both of its components lead.
func startPlane(t *testing.T, on backend) *plane {
	t.Helper()
	p := startServer(t, on)
	p.startComponents(t, p.kubeconfig())
	return p
}

// startServer starts the server of a control plane.
func startServer(t *testing.T, on backend) *plane {
	t.Helper()
	p := &plane{directory: filepath.Join(t.TempDir(), "data")}
	p.startWatchet(t, on)
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig())
	if err != nil {
		t.Fatalf("read the kubeconfig: %v", err)
	}
	config.QPS = -1
	p.config = config
	p.client = must(kubernetes.NewForConfig(config))(t)
	p.dynamic = must(dynamic.NewForConfig(config))(t)
	return p
}

// kubeconfig returns the path of the administrator's kubeconfig.
func (p *plane) kubeconfig() string { return filepath.Join(p.directory, "kubeconfig") }

// startComponents starts both components with a kubeconfig and returns when they lead.
func (p *plane) startComponents(t *testing.T, kubeconfig string) {
	t.Helper()
	pki := func(name string) string { return filepath.Join(p.directory, "pki", name) }
	managerPort, schedulerPort := freePort(t), freePort(t)
	p.manager = startProcess(t, "kube-controller-manager", program(t, "WATCHET_TEST_CONTROLLER_MANAGER"),
		"--kubeconfig="+kubeconfig,
		"--service-account-private-key-file="+pki("service-account.key"),
		"--root-ca-file="+pki("ca.crt"),
		"--cluster-signing-cert-file="+pki("ca.crt"),
		"--cluster-signing-key-file="+pki("ca.key"),
		fmt.Sprintf("--secure-port=%d", managerPort))
	p.scheduler = startProcess(t, "kube-scheduler", program(t, "WATCHET_TEST_SCHEDULER"),
		"--kubeconfig="+kubeconfig,
		fmt.Sprintf("--secure-port=%d", schedulerPort))
	p.waitForHealth(t, "kube-controller-manager", managerPort)
	p.waitForHealth(t, "kube-scheduler", schedulerPort)
	p.waitForLeader(t, "kube-controller-manager")
	p.waitForLeader(t, "kube-scheduler")
}

func (p *plane) startWatchet(t *testing.T, on backend) {
	t.Helper()
	args := []string{
		"serve",
		"--data-dir=" + p.directory,
		fmt.Sprintf("--secure-port=%d", freePort(t)),
		"--storage=" + string(on),
		// The stock controller manager runs the others. These are kube-apiserver's.
		"--controllers=legacy-token-tracking,cluster-authentication-trust",
	}
	if on == etcd {
		args = append(args, "--etcd-servers="+startEtcd(t))
	}
	p.watchet = startProcess(t, "watchet", program(t, "WATCHET_TEST_BINARY"), args...)
	p.watchet.waitForLine(t, "watchet is ready", startTimeout)
}

// startEtcd starts an etcd of its own for the test and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	client := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	startProcess(t, "etcd", program(t, "WATCHET_TEST_ETCD"),
		"--data-dir="+filepath.Join(t.TempDir(), "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--log-level=warn")
	poll(t, "etcd is healthy", startTimeout, func() error { return get(http.DefaultClient, client+"/health") })
	return client
}

// waitForHealth waits until a component says on its own port that it is healthy. Its certificate is self-signed.
func (p *plane) waitForHealth(t *testing.T, component string, port int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	poll(t, component+" is healthy", startTimeout, func() error {
		return get(client, fmt.Sprintf("https://127.0.0.1:%d/healthz", port))
	})
}

// get returns an error unless the answer is 200.
func get(client *http.Client, url string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return err
}

// waitForLeader waits until a component holds its lease, which is its own name in kube-system.
func (p *plane) waitForLeader(t *testing.T, component string) {
	t.Helper()
	poll(t, component+" leads", startTimeout, func() error {
		lease, err := p.client.CoordinationV1().Leases("kube-system").Get(t.Context(), component, metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = fmt.Errorf("the lease has no holder")
		}
		return err
	})
}

// stop ends the components before the server, so that they do not log that it is away.
func (p *plane) stop(t *testing.T) {
	t.Helper()
	for _, process := range []*process{p.manager, p.scheduler, p.watchet} {
		if process.hasEnded() {
			t.Errorf("%s ended by itself", process.name)
		}
		process.stop(t)
	}
}

// must turns a result and its error into a function that fails the test for the error.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// scenario is one subtest with a namespace of its own.
type scenario struct {
	*testing.T
	*plane
	kubelet   *kubelet
	namespace string
}

// run runs a scenario as a parallel subtest and records how long it took.
func (p *plane) run(t *testing.T, kubelet *kubelet, on backend, name string, test func(s *scenario)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		begin := time.Now()
		s := &scenario{T: t, plane: p, kubelet: kubelet}
		s.namespace = s.makeNamespace("test-")
		test(s)
		results.scenario(name, on, time.Since(begin))
	})
}

// makeNamespace creates a namespace and waits for what the service account controller and the publisher of the
// root certificate put into it.
func (s *scenario) makeNamespace(prefix string) string {
	s.Helper()
	namespace := create(s, s.client.CoreV1().Namespaces().Create, newNamespace(prefix)).Name
	s.eventually("the namespace has a default service account", convergeTimeout, func(ctx context.Context) error {
		_, err := s.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return namespace
}

// eventually calls check until it returns nil, and fails the test with the last error after timeout.
func (s *scenario) eventually(what string, timeout time.Duration, check func(ctx context.Context) error) {
	s.Helper()
	poll(s.T, what, timeout, func() error { return check(s.Context()) })
}

// create creates an object with the typed client's Create and fails the test if that is refused.
func create[T runtime.Object](s *scenario, with func(context.Context, T, metav1.CreateOptions) (T, error), object T) T {
	s.Helper()
	return must(with(s.Context(), object, metav1.CreateOptions{}))(s.T)
}
