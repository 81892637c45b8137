// Package testserver runs the watchet binary, and etcd where a test asks for it, as processes of a test.
//
// The programs are named by environment variables that scripts/test-go sets: WATCHET_TEST_BINARY and
// WATCHET_TEST_ETCD. A test without them fails; it is never skipped.
package testserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Backend is where the server stores objects: a value of watchet's --storage flag.
type Backend string

// The back ends that every test of semantics runs on.
const (
	Embedded Backend = "embedded"
	Etcd     Backend = "etcd"
)

// StartTimeout bounds the start of a process. It takes milliseconds on an idle machine.
const StartTimeout = 120 * time.Second

// OnBoth runs a test as two subtests, one for each back end.
func OnBoth(t *testing.T, test func(t *testing.T, backend Backend)) {
	t.Helper()
	for _, backend := range []Backend{Embedded, Etcd} {
		t.Run(string(backend), func(t *testing.T) { test(t, backend) })
	}
}

// Server is a running watchet process. The end of its test stops it and removes its data.
type Server struct {
	// DataDir holds the embedded store, the CA and the kubeconfig.
	DataDir string
	// EtcdEndpoint is the URL of the server's own etcd. It is empty on the embedded store.
	EtcdEndpoint string

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	// exited is closed when the process has ended and its output was read.
	exited chan struct{}
	log    *LockedBuffer
}

// Start starts a server on a free port of 127.0.0.1 and returns when it is ready. Each of args is a flag
// in the form --name=value; they follow the flags that choose port, directory, durability and storage.
func Start(t testing.TB, backend Backend, args ...string) *Server {
	t.Helper()
	if backend == Etcd {
		return StartOnEtcd(t, StartEtcd(t), args...)
	}
	return start(t, "", append([]string{"--storage=" + string(backend)}, args...))
}

// StartOnEtcd is Start for a server on an etcd that runs already, which several servers may share.
func StartOnEtcd(t testing.TB, endpoint string, args ...string) *Server {
	t.Helper()
	return start(t, endpoint, append([]string{"--storage=" + string(Etcd), "--etcd-servers=" + endpoint}, args...))
}

func start(t testing.TB, etcdEndpoint string, args []string) *Server {
	t.Helper()
	s := &Server{DataDir: filepath.Join(t.TempDir(), "data"), EtcdEndpoint: etcdEndpoint, t: t, log: &LockedBuffer{}}
	// Without a sync for each write, which is slow on a busy disk. Tests of crashes pass --durability=fsync.
	s.args = []string{"serve", "--data-dir=" + s.DataDir, fmt.Sprintf("--secure-port=%d", FreePort(t)), "--durability=interval"}
	s.args = append(s.args, args...)
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("log of the server:\n%s", tail(s.Log(), 8000))
		}
	})
	s.launch()
	return s
}

// Binary returns the path of the watchet binary under test.
func Binary(t testing.TB) string {
	t.Helper()
	return fromEnvironment(t, "WATCHET_TEST_BINARY")
}

func fromEnvironment(t testing.TB, name string) string {
	t.Helper()
	path := os.Getenv(name)
	if path == "" {
		t.Fatalf("%s is not set; run the tests with scripts/test-go", name)
	}
	return path
}

// launch starts the process and waits until it prints that it is ready.
func (s *Server) launch() {
	s.t.Helper()
	s.cmd = exec.Command(Binary(s.t), s.args...)
	// Those of the tests are no settings of the server, which logs each variable of its prefix that it does not know.
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "WATCHET_")
	})
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatalf("stdout of the server: %v", err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start the server: %v", err)
	}
	ready := make(chan struct{})
	s.exited = make(chan struct{})
	go s.follow(s.cmd, stdout, ready, s.exited)
	select {
	case <-ready:
	case <-s.exited:
		s.t.Fatalf("the server ended before it was ready:\n%s", s.Log())
	case <-time.After(StartTimeout):
		s.t.Fatalf("the server is not ready after %v:\n%s", StartTimeout, s.Log())
	}
}

// follow reads the standard output of cmd to its end, closes ready at the line that says so, and closes
// exited when the process has ended.
func (s *Server) follow(cmd *exec.Cmd, stdout io.Reader, ready, exited chan struct{}) {
	lines := bufio.NewScanner(stdout)
	isReady := false
	for lines.Scan() {
		fmt.Fprintln(s.log, lines.Text())
		if !isReady && strings.HasPrefix(lines.Text(), "watchet is ready") {
			isReady = true
			close(ready)
		}
	}
	// The exit status of a killed process is an error; tests look at the log and at the API instead.
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(s.log, "wait for the server:", err)
	}
	close(exited)
}

// Config returns a client configuration with the admin's credentials and without client-side rate limits.
func (s *Server) Config() *rest.Config {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		s.t.Fatalf("read the kubeconfig: %v", err)
	}
	config.QPS = -1
	return config
}

// Kubeconfig returns the path of the admin's kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.DataDir, "kubeconfig") }

// Log returns what the server, and the processes it was restarted from, printed so far.
func (s *Server) Log() string { return s.log.String() }

// Pid returns the process ID of the server.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Kill ends the process with SIGKILL and returns when it has ended.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

// Stop ends the process with SIGTERM and returns when it has ended.
func (s *Server) Stop() { s.signal(syscall.SIGTERM) }

func (s *Server) signal(signal syscall.Signal) {
	if s.cmd == nil || s.exited == nil {
		return
	}
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("send %v to the server: %v", signal, err)
	}
	<-s.exited
}

// Relaunch starts an ended server again, with the same data on the same port.
func (s *Server) Relaunch() {
	s.t.Helper()
	s.launch()
}

// StartEtcd starts an etcd with a directory of its own and returns the URL of its client port. The end
// of the test stops it.
func StartEtcd(t testing.TB) string {
	t.Helper()
	client := fmt.Sprintf("http://127.0.0.1:%d", FreePort(t))
	peer := fmt.Sprintf("http://127.0.0.1:%d", FreePort(t))
	log := &LockedBuffer{}
	cmd := exec.Command(fromEnvironment(t, "WATCHET_TEST_ETCD"),
		"--data-dir="+filepath.Join(t.TempDir(), "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--unsafe-no-fsync", "--log-level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("kill etcd: %v", err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Errorf("wait for etcd: %v", err)
		}
	})
	deadline := time.Now().Add(StartTimeout)
	for !healthy(client + "/health") {
		if time.Now().After(deadline) {
			t.Fatalf("etcd is not healthy after %v:\n%s", StartTimeout, log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return client
}

func healthy(url string) bool {
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// The ports of servers under test: below those that Linux gives to outgoing connections, one of which could
// take a port between the choice and the start of the server.
const (
	firstPort = 20000
	lastPort  = 32000
)

// chosen holds the ports that FreePort has returned, so that it returns none twice.
var chosen sync.Map

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, isTaken := chosen.LoadOrStore(port, true); isTaken {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			t.Fatalf("close the listener of port %d: %v", port, err)
		}
		return port
	}
	t.Fatalf("no free port between %d and %d", firstPort, lastPort)
	return 0
}

func tail(text string, size int) string {
	if len(text) > size {
		return "…" + text[len(text)-size:]
	}
	return text
}

// LockedBuffer is a bytes.Buffer that several goroutines may use, as a process that writes and a test that reads.
type LockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

// Write appends bytes.
func (b *LockedBuffer) Write(bytes []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(bytes)
}

// String returns what was written so far.
func (b *LockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}
