package controlplane

import (
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespaceLabel is on every namespace that a test creates.
const namespaceLabel = "test.watchet/namespace"

func newNamespace(prefix string) *core.Namespace {
	return &core.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: prefix, Labels: map[string]string{namespaceLabel: "true"},
	}}
}

// named returns metadata with a name, and with the label app of that value.
func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}
}

// selecting selects the objects that named labels.
func selecting(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

// podTemplate returns a template of one container that requests little.
func podTemplate(name, image string) core.PodTemplateSpec {
	template := core.PodTemplateSpec{ObjectMeta: named(name)}
	template.Name = ""
	template.Spec.Containers = []core.Container{{
		Name: "main", Image: image,
		Resources: core.ResourceRequirements{Requests: core.ResourceList{
			core.ResourceCPU: resource.MustParse("10m"), core.ResourceMemory: resource.MustParse("16Mi"),
		}},
	}}
	return template
}

func newPod(name string) *core.Pod {
	template := podTemplate(name, "image:1")
	return &core.Pod{ObjectMeta: named(name), Spec: template.Spec}
}

func newDeployment(name string, replicas int32) *apps.Deployment {
	return &apps.Deployment{ObjectMeta: named(name), Spec: apps.DeploymentSpec{
		Replicas: &replicas, Selector: selecting(name), Template: podTemplate(name, "image:1"),
	}}
}

// newJob returns a job whose pods end at once with this exit code.
func newJob(name, exitCode string) *batch.Job {
	template := podTemplate(name, "image:1")
	template.Annotations = map[string]string{exitCodeAnnotation: exitCode}
	template.Spec.RestartPolicy = core.RestartPolicyNever
	return &batch.Job{ObjectMeta: named(name), Spec: batch.JobSpec{Template: template}}
}

func newPriorityClass(name string, value int32) *scheduling.PriorityClass {
	return &scheduling.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
}

// requestCPU sets the CPU request of a pod's container.
func requestCPU(spec *core.PodSpec, amount string) {
	spec.Containers[0].Resources.Requests[core.ResourceCPU] = resource.MustParse(amount)
}
