// Leader election between processes: each candidate is this test binary, started again, so that SIGKILL can end it.
package clientgo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
)

// candidateVariable is set in the environment of a process that is a candidate. Its arguments are the path of a
// kubeconfig, a content type, a namespace and the candidate's identity.
const candidateVariable = "WATCHET_TEST_CANDIDATE"

// What a candidate prints, each followed by a value.
const (
	// observes is followed by the identity of a new leader.
	observes = "observes"
	// leads is followed by the time in nanoseconds, again and again while the candidate leads.
	leads = "leads"
)

// leadsPeriod is how often a leader reports.
const leadsPeriod = 5 * time.Millisecond

// candidateMain is the main function of a candidate. It takes part in the election until it loses it or until standard
// input ends, which it does when the test ends in any way.
func candidateMain(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%d arguments", len(args))
	}
	kubeconfig, contentType, namespace, identity := args[0], args[1], args[2], args[3]
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = contentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "read standard input:", err)
		}
	}()
	elector, err := leaderelection.NewLeaderElector(electionConfig(client, namespace, identity, leaderelection.LeaderCallbacks{
		OnNewLeader: func(leader string) { fmt.Println(observes, leader) },
		OnStartedLeading: func(ctx context.Context) {
			for ctx.Err() == nil {
				fmt.Println(leads, time.Now().UnixNano())
				time.Sleep(leadsPeriod)
			}
		},
		OnStoppedLeading: cancel,
	}))
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return nil
}

// candidateProcess is a running candidate and what it has printed.
type candidateProcess struct {
	cmd    *exec.Cmd
	stderr strings.Builder
	// exited is closed when the process has ended and its output was read.
	exited chan struct{}

	mutex    sync.Mutex
	observed []string
	// led are the times of its reports that it leads.
	led []time.Time
	// failure is what went wrong with its output or its end.
	failure error
}

// startCandidate starts a candidate. The end of the test kills it.
func (c *cluster) startCandidate(t *testing.T, identity string) *candidateProcess {
	t.Helper()
	executable, err := os.Executable()
	must(t, err)
	p := &candidateProcess{exited: make(chan struct{})}
	p.cmd = exec.Command(executable, c.Kubeconfig(), c.encoding, c.namespace, identity)
	p.cmd.Env = append(os.Environ(), candidateVariable+"=1")
	p.cmd.Stderr = &p.stderr
	// Nothing is written to it: it ends with this process.
	_, err = p.cmd.StdinPipe()
	must(t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go p.follow(stdout)
	t.Cleanup(func() {
		p.kill(t)
		if t.Failed() {
			t.Logf("errors of the candidate %s:\n%s", identity, p.stderr.String())
		}
	})
	return p
}

// follow reads what the process prints, until it ends.
func (p *candidateProcess) follow(stdout io.Reader) {
	defer close(p.exited)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		p.record(lines.Text())
	}
	// A killed process ends with an ExitError.
	var exit *exec.ExitError
	err := p.cmd.Wait()
	if errors.As(err, &exit) && !exit.Exited() {
		err = nil
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.failure = errors.Join(p.failure, lines.Err(), err)
}

func (p *candidateProcess) record(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch kind, value, _ := strings.Cut(line, " "); kind {
	case observes:
		p.observed = append(p.observed, value)
	case leads:
		nanoseconds, err := strconv.ParseInt(value, 10, 64)
		p.failure = errors.Join(p.failure, err)
		p.led = append(p.led, time.Unix(0, nanoseconds))
	default:
		p.failure = errors.Join(p.failure, fmt.Errorf("unknown report %q", line))
	}
}

// kill ends the process with SIGKILL, and returns when it has ended.
func (p *candidateProcess) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill a candidate: %v", err)
	}
	<-p.exited
	if p.failure != nil {
		t.Errorf("a candidate: %v", p.failure)
	}
}

// awaitObserved waits until the leader that the candidate has observed last is this one.
func (p *candidateProcess) awaitObserved(t *testing.T, c *cluster, leader string) {
	t.Helper()
	await(c.ctx, t, "a candidate observes the leader "+leader, func() error {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if len(p.observed) == 0 || p.observed[len(p.observed)-1] != leader {
			return fmt.Errorf("it has observed %q", p.observed)
		}
		return nil
	})
}

// awaitLeads waits for more reports of the candidate that it leads.
func (p *candidateProcess) awaitLeads(t *testing.T, c *cluster, more int) {
	t.Helper()
	before := len(p.reports())
	await(c.ctx, t, "a candidate leads", func() error {
		if got := len(p.reports()) - before; got < more {
			return fmt.Errorf("%d of %d reports", got, more)
		}
		return nil
	})
}

// reports returns the times at which the candidate led.
func (p *candidateProcess) reports() []time.Time {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.led
}

// leaderIsKilled kills the leader with SIGKILL, twice. The candidate that waits takes over when the lease has expired,
// not before, and no two processes ever report that they lead at the same time.
func leaderIsKilled(t *testing.T, c *cluster) {
	const reports = 10
	first := c.startCandidate(t, "first")
	first.awaitLeads(t, c, reports)
	second := c.startCandidate(t, "second")
	second.awaitObserved(t, c, "first")
	first.awaitLeads(t, c, reports)
	c.killLeader(t, first, second)
	// The identity of a process that was killed is a candidate like any other when it runs again.
	again := c.startCandidate(t, "first")
	again.awaitObserved(t, c, "second")
	second.awaitLeads(t, c, reports)
	c.killLeader(t, second, again)
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(c.ctx, "leader", metav1.GetOptions{})
	must(t, err)
	checkLease(t, lease, "first", 2)
}

// killLeader kills the leader, and returns when the candidate leads, which it may not before the lease has expired.
func (c *cluster) killLeader(t *testing.T, leader, candidate *candidateProcess) {
	t.Helper()
	leader.kill(t)
	if reports := candidate.reports(); len(reports) != 0 {
		t.Fatalf("the other candidate led at %v, before the leader was killed", reports[0])
	}
	// A renewal that was under way can be stored later: then the lease expires later, too. A candidate compares the
	// times of renewals in whole seconds, so it takes the first renewal within a second for the last one.
	lease, err := c.client.CoordinationV1().Leases(c.namespace).Get(c.ctx, "leader", metav1.GetOptions{})
	must(t, err)
	expires := lease.Spec.RenewTime.Truncate(time.Second).Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
	candidate.awaitLeads(t, c, 1)
	led, began := leader.reports(), candidate.reports()[0]
	if last := led[len(led)-1]; !last.Before(began) {
		t.Errorf("two leaders: one led until %v, the other from %v", last, began)
	}
	if began.Before(expires) {
		t.Errorf("the lease expires at %v, and the other candidate leads from %v", expires, began)
	}
}
