// Package flowcontrol checks that the default objects of API Priority and Fairness are those of kube-apiserver.
package flowcontrol

import (
	"context"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes"

	"watchet/tests/testserver"
)

const autoUpdate = flowcontrolv1.AutoUpdateAnnotationKey

func TestDefaultObjectsAreThoseOfKubeAPIServer(t *testing.T) {
	server := testserver.Start(t, testserver.Embedded)
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	client := kubernetes.NewForConfigOrDie(server.Config()).FlowcontrolV1()

	levels, err := client.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expectedLevels := append(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations...)
	if len(levels.Items) != len(expectedLevels) {
		t.Errorf("%d priority levels instead of %d", len(levels.Items), len(expectedLevels))
	}
	for _, expected := range expectedLevels {
		level, err := client.PriorityLevelConfigurations().Get(ctx, expected.Name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if !equality.Semantic.DeepEqual(level.Spec, expected.Spec) {
			t.Errorf("%s has the spec\n%+v instead of\n%+v", level.Name, level.Spec, expected.Spec)
		}
		if value := level.Annotations[autoUpdate]; value != "true" {
			t.Errorf("%s has the annotation %q", level.Name, value)
		}
	}

	schemas, err := client.FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expectedSchemas := append(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas...)
	if len(schemas.Items) != len(expectedSchemas) {
		t.Errorf("%d flow schemas instead of %d", len(schemas.Items), len(expectedSchemas))
	}
	for _, expected := range expectedSchemas {
		schema, err := client.FlowSchemas().Get(ctx, expected.Name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if !equality.Semantic.DeepEqual(schema.Spec, expected.Spec) {
			t.Errorf("%s has the spec\n%+v instead of\n%+v", schema.Name, schema.Spec, expected.Spec)
		}
		if value := schema.Annotations[autoUpdate]; value != "true" {
			t.Errorf("%s has the annotation %q", schema.Name, value)
		}
	}
}
