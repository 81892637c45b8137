package controlplane

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// scenarios are what is shown on each storage. They run in parallel, each in a namespace of its own.
var scenarios = []struct {
	name string
	test func(s *scenario)
}{
	{"deployment: rollout, rollback, scale", testDeployment},
	{"job: indexed, failing, suspended, TTL", testJob},
	{"cron job", testCronJob},
	{"stateful set with claims", testStatefulSet},
	{"daemon set", testDaemonSet},
	{"replication controller", testReplicationController},
	{"endpoints and endpoint slices", testEndpointSlices},
	{"garbage collection: background, foreground, orphan", testGarbageCollection},
	{"namespace deletion", testNamespaceDeletion},
	{"quota status", testQuotaStatus},
	{"service accounts, root certificate, token of a Secret", testServiceAccounts},
	{"taints, eviction, silent node", testTaintEviction},
	{"pods of a deleted node", testNodeRemoval},
	{"disruption budget", testDisruptionBudget},
	{"preemption", testPreemption},
	{"horizontal pod autoscaler", testAutoscaler},
	{"signing of certificates", testCertificates},
	{"aggregated cluster role", testAggregatedRole},
	{"type checks of admission policies", testPolicyStatus},
}

// sharedNodes is how many nodes the scenarios share.
const sharedNodes = 3

// TestEmbedded runs all scenarios on the embedded store.
func TestEmbedded(t *testing.T) {
	p := startPlane(t, embedded)
	runScenarios(t, p, embedded)
	checkLogs(t, p, "scenarios, embedded")
}

// TestEtcd runs all scenarios on etcd.
func TestEtcd(t *testing.T) {
	p := startPlane(t, etcd)
	runScenarios(t, p, etcd)
	checkLogs(t, p, "scenarios, etcd")
}

// TestLoad creates 200 deployments of 5 replicas and measures how long it takes until their pods run on 50 nodes.
func TestLoad(t *testing.T) {
	p := startPlane(t, embedded)
	runLoad(t, p)
	checkLogs(t, p, "load")
}

func runScenarios(t *testing.T, p *plane, on backend) {
	t.Helper()
	kubelet, stop := startKubelet(t, p.config)
	defer stop()
	for index := range sharedNodes {
		kubelet.addNode(t, fmt.Sprintf("node-%d", index), "")
	}
	t.Run("scenarios", func(t *testing.T) {
		for _, scenario := range scenarios {
			p.run(t, kubelet, on, scenario.name, scenario.test)
		}
	})
}

// checkLogs stops the control plane and judges what its programs logged.
func checkLogs(t *testing.T, p *plane, run string) {
	t.Helper()
	checkWatchLists(t, p)
	used := p.watchet.usage(t)
	p.stop(t)
	manager, scheduler := checkComponentLog(t, p.manager), checkComponentLog(t, p.scheduler)
	checkServerLog(t, p.watchet)
	results.fact(run+": watchet in total", "%.1f s of CPU, at most %d MiB", used.cpu.Seconds(), used.peak)
	results.fact(run+": errors that the components log by themselves", "kube-controller-manager %d, kube-scheduler %d", manager, scheduler)
}

// watchLists matches the number of streaming lists of a resource that only the controller manager reads, and of one
// that only the scheduler reads, in the server's metrics.
var watchLists = map[string]*regexp.Regexp{
	"kube-controller-manager": regexp.MustCompile(`(?m)^apiserver_watch_list_duration_seconds_count\{.*resource="cronjobs".*\} [1-9]`),
	"kube-scheduler":          regexp.MustCompile(`(?m)^apiserver_watch_list_duration_seconds_count\{.*resource="csistoragecapacities".*\} [1-9]`),
}

// checkWatchLists fails the test unless the informers of both components began with streaming lists.
func checkWatchLists(t *testing.T, p *plane) {
	t.Helper()
	metrics := must(p.client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
	for component, pattern := range watchLists {
		if !pattern.Match(metrics) {
			t.Errorf("the informers of %s do not begin with streaming lists", component)
		}
	}
}

// The size of the load.
const (
	loadNodes       = 50
	loadDeployments = 200
	loadReplicas    = 5
	// loadTimeout bounds the load. The controller manager's own limit of 20 requests a second makes it take a minute at
	// least.
	loadTimeout = 10 * time.Minute
	// loadClients is how many deployments are created at a time.
	loadClients = 8
)

func runLoad(t *testing.T, p *plane) {
	t.Helper()
	kubelet, stop := startKubelet(t, p.config)
	defer stop()
	for index := range loadNodes {
		kubelet.addNode(t, fmt.Sprintf("node-%d", index), "")
	}
	before, managerBefore, schedulerBefore := p.watchet.usage(t), p.manager.usage(t), p.scheduler.usage(t)
	namespace := must(p.client.CoreV1().Namespaces().Create(t.Context(), newNamespace("load-"), metav1.CreateOptions{}))(t).Name
	begin := time.Now()
	createDeployments(t, p, namespace)
	created := time.Since(begin)
	var bound, running time.Duration
	poll(t, "the pods of the load run", loadTimeout, func() error {
		pods, err := kubelet.pods.Pods(namespace).List(labels.Everything())
		if err != nil {
			return err
		}
		ready := 0
		for _, pod := range pods {
			if pod.Status.Phase == core.PodRunning {
				ready++
			}
		}
		// The fake kubelet follows only pods that are bound.
		if bound == 0 && len(pods) == loadDeployments*loadReplicas {
			bound = time.Since(begin)
		}
		if ready != loadDeployments*loadReplicas {
			return fmt.Errorf("%d are bound, %d run", len(pods), ready)
		}
		running = time.Since(begin)
		return nil
	})
	poll(t, "the deployments of the load are available", loadTimeout, func() error {
		return loadIsAvailable(t.Context(), p, namespace)
	})
	available := time.Since(begin)
	after := p.watchet.usage(t)
	results.fact("load: deployments, replicas, nodes", "%d, %d, %d", loadDeployments, loadDeployments*loadReplicas, loadNodes)
	results.fact("load: deployments created after", "%.1f s", created.Seconds())
	results.fact("load: all pods bound after", "%.1f s", bound.Seconds())
	results.fact("load: all pods running after", "%.1f s", running.Seconds())
	results.fact("load: all deployments available after", "%.1f s", available.Seconds())
	results.fact("load: watchet", "%.1f s of CPU, %d MiB at the end, at most %d MiB",
		(after.cpu - before.cpu).Seconds(), after.resident, after.peak)
	for _, component := range []struct {
		process *process
		before  usage
	}{{p.manager, managerBefore}, {p.scheduler, schedulerBefore}} {
		used := component.process.usage(t)
		results.fact("load: "+component.process.name, "%.1f s of CPU, at most %d MiB", (used.cpu - component.before.cpu).Seconds(), used.peak)
	}
}

// createDeployments creates the deployments of the load, some at a time.
func createDeployments(t *testing.T, p *plane, namespace string) {
	t.Helper()
	names := make(chan string)
	var clients sync.WaitGroup
	for range loadClients {
		clients.Go(func() {
			for name := range names {
				_, err := p.client.AppsV1().Deployments(namespace).Create(t.Context(), newDeployment(name, loadReplicas), metav1.CreateOptions{})
				if err != nil {
					t.Errorf("create deployment %s: %v", name, err)
				}
			}
		})
	}
	for index := range loadDeployments {
		names <- fmt.Sprintf("web-%d", index)
	}
	close(names)
	clients.Wait()
}

func loadIsAvailable(ctx context.Context, p *plane, namespace string) error {
	list, err := p.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	available := 0
	for _, deployment := range list.Items {
		if deployment.Status.AvailableReplicas == loadReplicas {
			available++
		}
	}
	if available != loadDeployments {
		return fmt.Errorf("%d of %d", available, loadDeployments)
	}
	return nil
}
