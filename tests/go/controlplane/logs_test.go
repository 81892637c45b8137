package controlplane

import (
	"regexp"
	"strings"
	"testing"
)

// allowedErrors are errors that a stock component also logs in front of a stock kube-apiserver, with the reason. Any
// other line of level error or fatal fails the tests.
var allowedErrors = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{
		regexp.MustCompile(`The manifest file is empty, ignoring\.$`),
		"component-base logs it at every start without --allow-metric-labels-manifest, before there is any request",
	},
	{
		regexp.MustCompile(`read version: \d+ is not as new as written version: \d+ for group resource`),
		"since 1.36 a controller waits for its own write to arrive in its informer, and logs each try before that",
	},
	{
		regexp.MustCompile(`Operation cannot be fulfilled on .*: the object has been modified; please apply your changes`),
		"two clients have changed an object at the same time, e.g. an eviction and the disruption controller a budget; the controller tries again",
	},
	{
		regexp.MustCompile(`"Unhandled Error" err="sync \\".*\\" failed with .* not found"`),
		"an object was deleted while its controller worked on it",
	},
	{
		regexp.MustCompile(`horizontal\.go:\d+\] "Unhandled Error" err="failed to compute desired number of replicas based on listed metrics`),
		"no server of metrics.k8s.io is installed; the autoscaler's condition says so too",
	},
	{
		regexp.MustCompile(`"Status after running PostFilter plugins for pod" .* status="not found"`),
		"the scheduler's plugin of resource claims finds no state when a plugin before it has rejected a pod, here because its claim is not bound yet",
	},
	{
		regexp.MustCompile(`"Server rejected event \(will not retry!\)" err="namespaces \\".*\\" not found"`),
		"a controller records an event about an object whose namespace has been deleted meanwhile",
	},
	{
		regexp.MustCompile(`"Unable to record event \(will not retry!\)" err="broadcaster already stopped"`),
		"the scheduler ends while it records an event",
	},
	{
		regexp.MustCompile(`leaderelection\.go:\d+\] "(Error retrieving lease lock|Failed to update lease)" err=".*(context deadline exceeded|Client\.Timeout exceeded)`),
		"a renewal took long on a busy machine; a component that loses its lease ends, which fails the test",
	},
	{
		regexp.MustCompile(`"(Plugin Failed|Error scheduling pod; retrying|Error updating pod)" err=".*pods \\".*\\" not found"`),
		"a pod was deleted while the scheduler bound it",
	},
}

// errorLine matches the lines of level error and fatal of klog, and the first line of a panic of Go.
var errorLine = regexp.MustCompile(`^([EF]\d{4} |panic: |fatal error: )`)

// checkComponentLog fails the test for each line of an error that is not allowed, and returns how many are.
func checkComponentLog(t *testing.T, component *process) (allowed int) {
	t.Helper()
	for _, line := range component.output() {
		if !errorLine.MatchString(line) {
			continue
		}
		if isAllowed(line) {
			allowed++
		} else {
			t.Errorf("%s logs an error: %s", component.name, line)
		}
	}
	return allowed
}

func isAllowed(line string) bool {
	for _, allowed := range allowedErrors {
		if allowed.pattern.MatchString(line) {
			return true
		}
	}
	return false
}

// checkServerLog fails the test for each line of level error of watchet.
func checkServerLog(t *testing.T, server *process) {
	t.Helper()
	for _, line := range server.output() {
		if strings.Contains(line, " ERROR ") || strings.Contains(line, "panicked at") {
			t.Errorf("%s logs an error: %s", server.name, line)
		}
	}
}
