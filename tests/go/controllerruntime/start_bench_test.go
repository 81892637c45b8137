package controllerruntime

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// BenchmarkStart measures Environment.Start, and the resident memory of its processes afterwards. Run it with a
// release build: go test ./controllerruntime -run '^$' -bench Start
func BenchmarkStart(b *testing.B) {
	var resident int
	for b.Loop() {
		env := &envtest.Environment{}
		if _, err := env.Start(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		resident += residentKiB(b)
		if err := env.Stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(resident)/float64(b.N)/1024, "MiB")
}

// residentKiB returns the resident memory of the children of this process.
func residentKiB(b *testing.B) int {
	b.Helper()
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		b.Fatal(err)
	}
	parent := fmt.Appendf(nil, "\nPPid:\t%d\n", os.Getpid())
	total := 0
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		// Other processes end meanwhile.
		if err != nil || !bytes.Contains(status, parent) {
			continue
		}
		_, after, _ := bytes.Cut(status, []byte("\nVmRSS:"))
		var size int
		if _, err := fmt.Sscanf(string(after), "%d kB", &size); err == nil {
			total += size
		}
	}
	return total
}
