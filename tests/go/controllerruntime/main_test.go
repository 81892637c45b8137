// Package controllerruntime runs controller-runtime's envtest, unmodified, on watchet: the environment itself,
// a manager with controllers and caches, and an operator with webhooks.
package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// patience bounds what takes milliseconds on an idle machine.
const patience = 120 * time.Second

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run makes the assets as the README says, in a shell, and runs the tests with what that exports.
func run(m *testing.M) (int, error) {
	binary := os.Getenv("WATCHET_TEST_BINARY")
	if binary == "" {
		return 0, errors.New("WATCHET_TEST_BINARY is not set; run the tests with scripts/test-go")
	}
	directory, err := os.MkdirTemp("", "watchet-envtest-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(directory)
	// The README calls the program by its name.
	if err := os.Symlink(binary, filepath.Join(directory, "watchet")); err != nil {
		return 0, err
	}
	shell := exec.Command("sh", "-ec", assetsCommand+"\nprintenv KUBEBUILDER_ASSETS")
	shell.Env = append(os.Environ(),
		"PATH="+directory+string(os.PathListSeparator)+os.Getenv("PATH"),
		"XDG_CACHE_HOME="+filepath.Join(directory, "cache"),
	)
	shell.Stderr = os.Stderr
	output, err := shell.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", assetsCommand, err)
	}
	if err := os.Setenv("KUBEBUILDER_ASSETS", strings.TrimSpace(string(output))); err != nil {
		return 0, err
	}
	// The defaults of envtest are 20 s.
	for _, limit := range []string{"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT"} {
		if err := os.Setenv(limit, patience.String()); err != nil {
			return 0, err
		}
	}
	ctrl.SetLogger(klog.Background())
	return m.Run(), nil
}

// start starts env and returns a configuration and a client of it. The end of the test stops it.
func start(t *testing.T, env *envtest.Environment) (*rest.Config, client.Client) {
	t.Helper()
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the environment: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the environment: %v", err)
		}
	})
	return config, newClient(t, config, client.Options{Scheme: env.Scheme})
}

func newClient(t *testing.T, config *rest.Config, options client.Options) client.Client {
	t.Helper()
	c, err := client.New(config, options)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return c
}

// eventually waits until check returns no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// startManager runs manager until the end of the test, or until the returned function is called.
func startManager(t *testing.T, manager ctrl.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run the manager: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func configMap(name string, labels map[string]string, data map[string]string) *corev1.ConfigMap {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: data}
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}
