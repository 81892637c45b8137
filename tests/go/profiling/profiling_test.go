// Package profiling checks that Go's pprof reads the profiles that watchet serves at /debug/pprof/.
package profiling

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchet/tests/testserver"
)

// recording is the time for which each profile is recorded.
const recording = 3

func TestPprofReadsProfiles(t *testing.T) {
	server := testserver.Start(t, testserver.Embedded)
	for _, kind := range []string{"profile", "heap"} {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), kind+".pb.gz")
			if err := os.WriteFile(path, record(t, server, kind), 0o600); err != nil {
				t.Fatal(err)
			}
			// `go test` puts the directory of its Go first in PATH.
			pprof := exec.Command("go", "tool", "pprof", "-top", "-cum", "-nodecount=300", testserver.Binary(t), path)
			output, err := pprof.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			if !strings.Contains(string(output), "watchet_") {
				t.Errorf("no function of the server: %s", output)
			}
			unit := map[string]string{"profile": "Type: cpu", "heap": "Type: inuse_space"}[kind]
			if !strings.Contains(string(output), unit) {
				t.Errorf("not %q: %s", unit, output)
			}
		})
	}
}

// record returns a profile of a server that other clients use meanwhile.
func record(t *testing.T, server *testserver.Server, kind string) []byte {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(server.Config())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- load(ctx, client, kind) }()
	request := client.RESTClient().Get().AbsPath("/debug/pprof/"+kind).Param("seconds", fmt.Sprint(recording))
	profile, err := request.Timeout(0).DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-failed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(testserver.StartTimeout):
		t.Fatal("the load does not end")
	}
	return profile
}

// load creates config maps and lists them until ctx ends.
func load(ctx context.Context, client kubernetes.Interface, kind string) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for number := 0; ; number++ {
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", kind, number)},
			Data:       map[string]string{"text": strings.Repeat("x", 500_000)},
		}
		var err error
		if number < 40 {
			_, err = maps.Create(ctx, config, metav1.CreateOptions{})
		} else {
			_, err = maps.List(ctx, metav1.ListOptions{Limit: 10})
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
