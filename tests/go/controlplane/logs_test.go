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
}{}

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
