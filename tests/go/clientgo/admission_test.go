// Admission policies through the typed clients of admissionregistration.k8s.io/v1.
package clientgo

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyadmissionv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
)

func TestAdmissionPolicies(t *testing.T) {
	runCases(t, []testCase{
		{"SidecarByApplyConfiguration", sidecarByApplyConfiguration},
		{"JSONPatchWithParam", jsonPatchWithParam},
		{"FailingMutation", failingMutation},
	})
}

// mutatingPolicy returns a policy about the creation of a resource in the namespace of the case, with the name of that
// namespace.
func (c *cluster) mutatingPolicy(resource string, mutations ...admissionv1.Mutation) *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace},
				},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule: admissionv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource},
						},
					},
				}},
			},
			Mutations:          mutations,
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		},
	}
}

// bindPolicy creates a policy and a binding with the same name, and deletes them when the case ends.
func (c *cluster) bindPolicy(t *testing.T, policy *admissionv1.MutatingAdmissionPolicy, param *admissionv1.ParamRef) *admissionv1.MutatingAdmissionPolicy {
	t.Helper()
	client := c.client.AdmissionregistrationV1()
	made, err := client.MutatingAdmissionPolicies().Create(c.ctx, policy, metav1.CreateOptions{})
	must(t, err)
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ParamRef: param},
	}
	_, err = client.MutatingAdmissionPolicyBindings().Create(c.ctx, binding, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, client.MutatingAdmissionPolicyBindings().Delete(c.ctx, policy.Name, metav1.DeleteOptions{}))
		must(t, client.MutatingAdmissionPolicies().Delete(c.ctx, policy.Name, metav1.DeleteOptions{}))
	})
	return made
}

func applyMutation(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{
		PatchType:          admissionv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: expression},
	}
}

func jsonPatchMutation(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{
		PatchType: admissionv1.PatchTypeJSONPatch,
		JSONPatch: &admissionv1.JSONPatch{Expression: expression},
	}
}

// sidecarByApplyConfiguration has a policy add a restartable init container to pods that have none of its name.
func sidecarByApplyConfiguration(t *testing.T, c *cluster) {
	policy := c.mutatingPolicy("pods", applyMutation(`
		Object{
			spec: Object.spec{
				initContainers: [
					Object.spec.initContainers{
						name: "mesh-proxy",
						image: "mesh/proxy:v1",
						restartPolicy: "Always"
					}
				]
			}
		}`))
	policy.Spec.MatchConditions = []admissionv1.MatchCondition{{
		Name:       "no-sidecar",
		Expression: `!object.spec.?initContainers.orValue([]).exists(c, c.name == "mesh-proxy")`,
	}}
	made := c.bindPolicy(t, policy, nil)
	if made.Generation != 1 || *made.Spec.FailurePolicy != admissionv1.Fail ||
		*made.Spec.MatchConstraints.MatchPolicy != admissionv1.Equivalent {
		t.Errorf("the policy lacks defaults: %+v", made)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	pod, err := c.client.CoreV1().Pods(c.namespace).Create(c.ctx, pod, metav1.CreateOptions{})
	must(t, err)
	if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("init containers: %+v", pod.Spec.InitContainers)
	}
	// Another manager sets the failure policy by server-side apply.
	apply := applyadmissionv1.MutatingAdmissionPolicy(c.namespace).
		WithSpec(applyadmissionv1.MutatingAdmissionPolicySpec().
			WithFailurePolicy(admissionv1.Ignore))
	policies := c.client.AdmissionregistrationV1().MutatingAdmissionPolicies()
	applied, err := policies.Apply(c.ctx, apply, metav1.ApplyOptions{FieldManager: "other", Force: true})
	must(t, err)
	if *applied.Spec.FailurePolicy != admissionv1.Ignore || applied.Generation != 2 || len(applied.Spec.Mutations) != 1 {
		t.Errorf("applied: %+v", applied)
	}
}

// jsonPatchWithParam has a policy label config maps with a value of a parameter.
func jsonPatchWithParam(t *testing.T, c *cluster) {
	c.createConfigMap(t, "param", "blue")
	policy := c.mutatingPolicy("configmaps", jsonPatchMutation(`
		[
			JSONPatch{op: "test", path: "/metadata/name", value: "one"},
			JSONPatch{op: "add", path: "/metadata/labels", value: Object.metadata.labels{}},
			JSONPatch{
				op: "add",
				path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/color"),
				value: params.data.size() > 0 ? "colored" : "plain"
			}
		]`))
	policy.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	deny := admissionv1.DenyAction
	c.bindPolicy(t, policy, &admissionv1.ParamRef{
		Name: "param", Namespace: c.namespace, ParameterNotFoundAction: &deny,
	})
	for name, want := range map[string]string{"one": "colored", "two": ""} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		made, err := c.client.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, object, metav1.CreateOptions{})
		must(t, err)
		if got := made.Labels["example.com/color"]; got != want {
			t.Errorf("%s is labeled %q, not %q", name, got, want)
		}
	}
}

// failingMutation expects the status of a mutation that cannot be evaluated.
func failingMutation(t *testing.T, c *cluster) {
	c.bindPolicy(t, c.mutatingPolicy("configmaps", applyMutation(`Object{data: {"a": object.data.missing}}`)), nil)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"b": "c"}}
	_, err := c.client.CoreV1().ConfigMaps(c.namespace).Create(c.ctx, object, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "policy '"+c.namespace+"' with binding '") {
		t.Errorf("the refusal is %v", err)
	}
	invalid := c.mutatingPolicy("configmaps", jsonPatchMutation("Object{}"))
	invalid.Name += "-invalid"
	_, err = c.client.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(c.ctx, invalid, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must evaluate to list(JSONPatch) but got Object") {
		t.Errorf("the refusal is %v", err)
	}
}
