package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stopTimeout bounds the end of a process after SIGTERM; then it is killed.
const stopTimeout = 40 * time.Second

// process is a running program whose output lines are collected. The end of its test stops it.
type process struct {
	name string
	cmd  *exec.Cmd
	// exited is closed when the program has ended and its output was read.
	exited chan struct{}

	mutex sync.Mutex
	lines []string
}

// startProcess starts a program. Standard output and standard error are collected together.
func startProcess(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(path, args...), exited: make(chan struct{})}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatalf("output of %s: %v", name, err)
	}
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	if err := writer.Close(); err != nil {
		t.Fatalf("output of %s: %v", name, err)
	}
	go p.follow(reader)
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", name, strings.Join(p.tail(40), "\n"))
		}
	})
	return p
}

// follow collects lines until the program closes its output, then waits for its end.
func (p *process) follow(output *os.File) {
	defer close(p.exited)
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.add(lines.Text())
	}
	if err := lines.Err(); err != nil {
		p.add(fmt.Sprintf("F read the output: %v", err))
	}
	// How the program ended is for the test to judge: a signal is an ExitError.
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.add(fmt.Sprintf("F wait: %v", err))
	}
	if err := output.Close(); err != nil {
		p.add(fmt.Sprintf("F close the output: %v", err))
	}
}

func (p *process) add(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.lines = append(p.lines, line)
}

// output returns the lines that the program has printed so far.
func (p *process) output() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return append([]string(nil), p.lines...)
}

func (p *process) tail(count int) []string {
	lines := p.output()
	return lines[max(0, len(lines)-count):]
}

// waitForLine returns when the program has printed a line with this prefix.
func (p *process) waitForLine(t *testing.T, prefix string, timeout time.Duration) {
	t.Helper()
	poll(t, fmt.Sprintf("%s prints %q", p.name, prefix), timeout, func() error {
		for _, line := range p.output() {
			if strings.HasPrefix(line, prefix) {
				return nil
			}
		}
		select {
		case <-p.exited:
			t.Fatalf("%s ended early:\n%s", p.name, strings.Join(p.tail(40), "\n"))
		default:
		}
		return errors.New("no such line")
	})
}

// hasEnded returns true if the program has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// stop sends SIGTERM, and SIGKILL when that takes too long, and returns when the program has ended.
func (p *process) stop(t *testing.T) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("send %v to %s: %v", signal, p.name, err)
		}
		select {
		case <-p.exited:
			return
		case <-time.After(stopTimeout):
			t.Errorf("%s still runs %v after %v", p.name, stopTimeout, signal)
		}
	}
}

// usage is what a process has used of the machine, as /proc reports it.
type usage struct {
	cpu time.Duration
	// resident and peak are sizes of resident memory in MiB, now and at most so far.
	resident, peak int
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every Linux port that Go supports.
const clockTick = 10 * time.Millisecond

// usage reads the CPU time and the memory of the process.
func (p *process) usage(t *testing.T) usage {
	t.Helper()
	stat := readFile(t, fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	// The second field, the command in parentheses, may contain spaces. utime and stime are the fields 14 and 15.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	result := usage{cpu: time.Duration(number(t, fields[11])+number(t, fields[12])) * clockTick}
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			result.resident = number(t, fields[1]) / 1024
		case "VmHWM:":
			result.peak = number(t, fields[1]) / 1024
		}
	}
	return result
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func number(t *testing.T, text string) int {
	t.Helper()
	value, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// program returns the path of a program that scripts/test-control-plane names in the environment.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set; run the tests with scripts/test-control-plane", variable)
	}
	return path
}

// chosen holds the ports that freePort has returned, so that it returns none twice.
var chosen sync.Map

// freePort returns a TCP port of 127.0.0.1 on which no program listens, below those that Linux gives to outgoing connections:
// one of them could take the port before the program listens.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		if _, isTaken := chosen.LoadOrStore(port, true); isTaken {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			t.Errorf("close a listener: %v", err)
		}
		return port
	}
	t.Fatal("no free port")
	return 0
}

// pollInterval is the pause between two looks at a condition.
const pollInterval = 100 * time.Millisecond

// poll calls check until it returns nil, and fails the test with the last error after timeout.
func poll(t *testing.T, what string, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, timeout, err)
		}
		time.Sleep(pollInterval)
	}
}
