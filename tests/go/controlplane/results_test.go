package controlplane

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// results collects what the tests measure; TestMain prints it.
var results = &table{scenarios: map[string]map[backend]time.Duration{}}

// table is the table of results.
type table struct {
	mutex     sync.Mutex
	scenarios map[string]map[backend]time.Duration
	facts     [][2]string
}

// scenario records that a scenario passed.
func (r *table) scenario(name string, on backend, took time.Duration) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.scenarios[name] == nil {
		r.scenarios[name] = map[backend]time.Duration{}
	}
	r.scenarios[name][on] = took
}

// fact records a measurement.
func (r *table) fact(what, format string, args ...any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.facts = append(r.facts, [2]string{what, fmt.Sprintf(format, args...)})
}

// print writes the results as tables of Markdown.
func (r *table) print(out io.Writer) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "| scenario | %s | %s |\n|---|---|---|\n", embedded, etcd)
	for _, scenario := range scenarios {
		name := scenario.name
		cell := func(on backend) string {
			if took, passed := r.scenarios[name][on]; passed {
				return fmt.Sprintf("%.1f s", took.Seconds())
			}
			return "-"
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", name, cell(embedded), cell(etcd))
	}
	text.WriteString("\n| measured | |\n|---|---|\n")
	for _, fact := range r.facts {
		fmt.Fprintf(&text, "| %s | %s |\n", fact[0], fact[1])
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// TestMain runs the tests and writes the table of results to the file that the environment names.
func TestMain(m *testing.M) {
	status := m.Run()
	if path := os.Getenv("WATCHET_TEST_TABLE"); path != "" {
		if err := writeTable(path); err != nil {
			fmt.Fprintln(os.Stderr, "write the table of results:", err)
			status = 1
		}
	}
	os.Exit(status)
}

func writeTable(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = results.print(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
