package controlplane

import (
	"context"
	"fmt"

	admission "k8s.io/api/admissionregistration/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// testAutoscaler shows that the controller of horizontal pod autoscalers reads its objects, scales their targets to
// what is allowed, and writes their status. Nothing serves metrics here, which its conditions report.
func testAutoscaler(s *scenario) {
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, newDeployment("web", 1))
	s.deploymentIsComplete("web", 1, "1")
	create(s, s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Create, &autoscaling.HorizontalPodAutoscaler{
		ObjectMeta: named("web"),
		Spec: autoscaling.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    ptr.To[int32](3), MaxReplicas: 5,
			Metrics: []autoscaling.MetricSpec{{Type: autoscaling.ResourceMetricSourceType, Resource: &autoscaling.ResourceMetricSource{
				Name:   core.ResourceCPU,
				Target: autoscaling.MetricTarget{Type: autoscaling.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)},
			}}},
		},
	})
	s.deploymentIsComplete("web", 3, "1")
	s.autoscalerReports("web", 3)

	s.scaleDeployment("web", 8)
	s.deploymentIsComplete("web", 5, "1")
	s.autoscalerReports("web", 5)
}

// autoscalerReports waits until the status has so many replicas, that scaling works, and that metrics do not.
func (s *scenario) autoscalerReports(name string, replicas int32) {
	s.Helper()
	s.eventually(fmt.Sprintf("the autoscaler reports %d replicas", replicas), convergeTimeout, func(ctx context.Context) error {
		scaler, err := s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions := map[autoscaling.HorizontalPodAutoscalerConditionType]core.ConditionStatus{}
		for _, condition := range scaler.Status.Conditions {
			conditions[condition.Type] = condition.Status
		}
		if scaler.Status.CurrentReplicas != replicas || conditions[autoscaling.AbleToScale] != core.ConditionTrue ||
			conditions[autoscaling.ScalingActive] != core.ConditionFalse {
			return fmt.Errorf("status %+v", scaler.Status)
		}
		return nil
	})
}

// testPolicyStatus shows that the status of a validating admission policy names an expression that does not fit the
// type. The server writes it with the policy, so that the stock controller finds it up to date.
func testPolicyStatus(s *scenario) {
	policies := s.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	create(s, policies.Create, &admission.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admission.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{
				RuleWithOperations: admission.RuleWithOperations{
					Operations: []admission.OperationType{admission.Create},
					Rule:       admission.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				},
			}}},
			Validations: []admission.Validation{
				{Expression: "object.spec.replicas < 100"},
				{Expression: "object.spec.replicaz < 100"},
			},
		},
	})
	s.eventually("the expressions are checked", convergeTimeout, func(ctx context.Context) error {
		policy, err := policies.Get(ctx, s.namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		checking := policy.Status.TypeChecking
		if policy.Status.ObservedGeneration != policy.Generation || checking == nil || len(checking.ExpressionWarnings) != 1 ||
			checking.ExpressionWarnings[0].FieldRef != "spec.validations[1].expression" {
			return fmt.Errorf("status %+v", policy.Status)
		}
		return nil
	})
}
