package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// testEndpointSlices shows that the ready pods of a service are in its slices, before and after scaling.
func testEndpointSlices(s *scenario) {
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, newDeployment("web", 4))
	create(s, s.client.CoreV1().Services(s.namespace).Create, &core.Service{ObjectMeta: named("web"), Spec: core.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Ports:    []core.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}})
	s.serviceHasEndpoints("web", 4)
	s.scaleDeployment("web", 2)
	s.serviceHasEndpoints("web", 2)
}

// serviceHasEndpoints waits until the service's slices, and its older Endpoints object, have the addresses of as many
// pods, each of them ready.
func (s *scenario) serviceHasEndpoints(service string, count int) {
	s.Helper()
	s.eventually(fmt.Sprintf("service %s has %d endpoints", service, count), convergeTimeout, func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
		if err != nil {
			return err
		}
		var expected []string
		for _, pod := range pods.Items {
			expected = append(expected, pod.Status.PodIP)
		}
		slicesOf := metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + service}
		list, err := s.client.DiscoveryV1().EndpointSlices(s.namespace).List(ctx, slicesOf)
		if err != nil {
			return err
		}
		var sliced []string
		for _, slice := range list.Items {
			for _, endpoint := range slice.Endpoints {
				if ptr.Deref(endpoint.Conditions.Ready, false) {
					sliced = append(sliced, endpoint.Addresses...)
				}
			}
		}
		//nolint:staticcheck // The controller of the deprecated Endpoints is part of the stock control plane.
		endpoints, err := s.client.CoreV1().Endpoints(s.namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var addresses []string
		for _, subset := range endpoints.Subsets {
			for _, address := range subset.Addresses {
				addresses = append(addresses, address.IP)
			}
		}
		for _, found := range [][]string{expected, sliced, addresses} {
			slices.Sort(found)
		}
		if len(expected) != count || !slices.Equal(expected, sliced) || !slices.Equal(expected, addresses) {
			return fmt.Errorf("pods %v, slices %v, endpoints %v", expected, sliced, addresses)
		}
		return nil
	})
}

// testGarbageCollection shows the three propagation policies on deployments.
func testGarbageCollection(s *scenario) {
	deployments := s.client.AppsV1().Deployments(s.namespace)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		name := map[metav1.DeletionPropagation]string{
			metav1.DeletePropagationBackground: "background",
			metav1.DeletePropagationForeground: "foreground",
			metav1.DeletePropagationOrphan:     "orphan",
		}[policy]
		create(s, deployments.Create, newDeployment(name, 2))
		s.deploymentIsComplete(name, 2, "1")
		if err := deployments.Delete(s.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			s.Fatal(err)
		}
		s.eventually("deployment "+name+" is deleted", convergeTimeout, func(ctx context.Context) error {
			_, err := deployments.Get(ctx, name, metav1.GetOptions{})
			return expectNotFound(err)
		})
		remaining := 0
		if policy == metav1.DeletePropagationOrphan {
			remaining = 2
		}
		if policy == metav1.DeletePropagationForeground {
			// The owner is deleted last.
			sets := must(s.client.AppsV1().ReplicaSets(s.namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app=" + name}))(s.T)
			if len(sets.Items) != 0 {
				s.Errorf("a replica set outlived its owner's deletion in the foreground")
			}
		}
		s.podsExist("app="+name, remaining)
	}
	set := s.replicaSetOfRevision("orphan", "1")
	if len(set.OwnerReferences) != 0 {
		s.Errorf("the orphan has owners: %v", set.OwnerReferences)
	}
}

// testNamespaceDeletion shows that a namespace goes with all that is in it.
func testNamespaceDeletion(s *scenario) {
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, newDeployment("web", 3))
	s.deploymentIsComplete("web", 3, "1")
	if err := s.client.CoreV1().Namespaces().Delete(s.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.eventually("the namespace is deleted", convergeTimeout, func(ctx context.Context) error {
		_, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
		return expectNotFound(err)
	})
	for _, remaining := range []struct {
		what string
		list func() (int, error)
	}{
		{"pods", func() (int, error) {
			list, err := s.client.CoreV1().Pods(s.namespace).List(s.Context(), metav1.ListOptions{})
			return len(list.Items), err
		}},
		{"config maps", func() (int, error) {
			list, err := s.client.CoreV1().ConfigMaps(s.namespace).List(s.Context(), metav1.ListOptions{})
			return len(list.Items), err
		}},
	} {
		if count, err := remaining.list(); err != nil || count != 0 {
			s.Errorf("%d %s remain in the deleted namespace: %v", count, remaining.what, err)
		}
	}
}

// testQuotaStatus shows that a quota counts what there is already, and what is deleted no more. To charge what is
// created afterwards is the work of the server's admission.
func testQuotaStatus(s *scenario) {
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, newDeployment("web", 4))
	s.deploymentIsComplete("web", 4, "1")
	create(s, s.client.CoreV1().ResourceQuotas(s.namespace).Create, &core.ResourceQuota{ObjectMeta: named("quota"), Spec: core.ResourceQuotaSpec{
		Hard: core.ResourceList{
			core.ResourcePods: resource.MustParse("10"), core.ResourceRequestsCPU: resource.MustParse("1"),
			"count/deployments.apps": resource.MustParse("3"),
		},
	}})
	s.quotaUses("quota", map[core.ResourceName]string{core.ResourcePods: "4", core.ResourceRequestsCPU: "40m", "count/deployments.apps": "1"})
	s.scaleDeployment("web", 1)
	s.quotaUses("quota", map[core.ResourceName]string{core.ResourcePods: "1", core.ResourceRequestsCPU: "10m", "count/deployments.apps": "1"})
	if err := s.client.AppsV1().Deployments(s.namespace).Delete(s.Context(), "web", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.quotaUses("quota", map[core.ResourceName]string{core.ResourcePods: "0", core.ResourceRequestsCPU: "0", "count/deployments.apps": "0"})
}

func (s *scenario) quotaUses(name string, expected map[core.ResourceName]string) {
	s.Helper()
	s.eventually(fmt.Sprintf("quota %s uses %v", name, expected), convergeTimeout, func(ctx context.Context) error {
		quota, err := s.client.CoreV1().ResourceQuotas(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for resource, amount := range expected {
			if used, counted := quota.Status.Used[resource]; !counted || used.String() != amount {
				return fmt.Errorf("used: %v", quota.Status.Used)
			}
		}
		return nil
	})
}

// testServiceAccounts shows the root certificate in the namespace, the token of a Secret, and that the server
// authenticates it.
func testServiceAccounts(s *scenario) {
	root := readFile(s.T, filepath.Join(s.directory, "pki", "ca.crt"))
	s.eventually("the root certificate is published", convergeTimeout, func(ctx context.Context) error {
		published, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && published.Data["ca.crt"] != root {
			err = fmt.Errorf("another certificate: %v", published.Data)
		}
		return err
	})
	create(s, s.client.CoreV1().ServiceAccounts(s.namespace).Create, &core.ServiceAccount{ObjectMeta: named("robot")})
	create(s, s.client.CoreV1().Secrets(s.namespace).Create, &core.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{core.ServiceAccountNameKey: "robot"}},
		Type:       core.SecretTypeServiceAccountToken,
	})
	var secret *core.Secret
	s.eventually("the secret has a token", convergeTimeout, func(ctx context.Context) (err error) {
		secret, err = s.client.CoreV1().Secrets(s.namespace).Get(ctx, "robot", metav1.GetOptions{})
		if err == nil && len(secret.Data[core.ServiceAccountTokenKey]) == 0 {
			err = fmt.Errorf("it has %d values", len(secret.Data))
		}
		return err
	})
	user := "system:serviceaccount:" + s.namespace + ":robot"
	if found := s.userOf(string(secret.Data[core.ServiceAccountTokenKey])); found != user {
		s.Errorf("the token of the secret is of %q instead of %q", found, user)
	}
	if err := s.client.CoreV1().ServiceAccounts(s.namespace).Delete(s.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.eventually("the secret is deleted with its account", convergeTimeout, func(ctx context.Context) error {
		_, err := s.client.CoreV1().Secrets(s.namespace).Get(ctx, "robot", metav1.GetOptions{})
		return expectNotFound(err)
	})
}

// userOf returns the name of the user as whom the server authenticates a token.
func (s *scenario) userOf(token string) string {
	s.Helper()
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token
	client := must(kubernetes.NewForConfig(config))(s.T)
	review := must(client.AuthenticationV1().SelfSubjectReviews().Create(s.Context(), &authentication.SelfSubjectReview{}, metav1.CreateOptions{}))(s.T)
	return review.Status.UserInfo.Username
}

// testTaintEviction shows that a NoExecute taint evicts pods, and that a node without heartbeats gets one.
func testTaintEviction(s *scenario) {
	key := s.reservedNodes(2)
	deployment := newDeployment("web", 4)
	useReserved(&deployment.Spec.Template.Spec, key)
	for _, taint := range []string{core.TaintNodeNotReady, core.TaintNodeUnreachable} {
		deployment.Spec.Template.Spec.Tolerations = append(deployment.Spec.Template.Spec.Tolerations, core.Toleration{
			Key: taint, Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](1),
		})
	}
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, deployment)
	s.deploymentIsComplete("web", 4, "1")

	first, second := s.namespace+"-0", s.namespace+"-1"
	patch := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"true","effect":"NoSchedule"},{"key":"test.watchet/out","effect":"NoExecute"}]}}`, key)
	must(s.client.CoreV1().Nodes().Patch(s.Context(), first, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}))(s.T)
	s.allRunOn(second, 4)

	patch = fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"true","effect":"NoSchedule"}]}}`, key)
	must(s.client.CoreV1().Nodes().Patch(s.Context(), first, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}))(s.T)
	s.kubelet.silence(second)
	s.eventually("the silent node is tainted", 2*time.Minute, func(ctx context.Context) error {
		node, err := s.client.CoreV1().Nodes().Get(ctx, second, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(node.Spec.Taints, func(taint core.Taint) bool {
			return taint.Key == core.TaintNodeUnreachable && taint.Effect == core.TaintEffectNoExecute
		}) {
			err = fmt.Errorf("taints %v", node.Spec.Taints)
		}
		return err
	})
	s.allRunOn(first, 4)
}

// allRunOn waits until as many pods that are not being deleted are ready, all of them on one node.
func (s *scenario) allRunOn(node string, count int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d pods run on %s", count, node), convergeTimeout, func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var running []string
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp == nil && pod.Status.Phase == core.PodRunning {
				running = append(running, pod.Spec.NodeName)
			}
		}
		if len(running) != count || slices.ContainsFunc(running, func(other string) bool { return other != node }) {
			return fmt.Errorf("they run on %v", running)
		}
		return nil
	})
}

// testDisruptionBudget shows an eviction that a budget refuses, and one that it allows.
func testDisruptionBudget(s *scenario) {
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, newDeployment("web", 3))
	create(s, s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Create, &policy.PodDisruptionBudget{
		ObjectMeta: named("web"),
		Spec:       policy.PodDisruptionBudgetSpec{Selector: selecting("web"), MinAvailable: ptr.To(intstr.FromInt32(3))},
	})
	s.deploymentIsComplete("web", 3, "1")
	s.budgetAllows("web", 0)
	pods := s.podsExist("app=web", 3)
	if err := s.evict(pods[0].Name); !apierrors.IsTooManyRequests(err) {
		s.Errorf("an eviction against the budget: %v", err)
	}
	s.scaleDeployment("web", 4)
	s.deploymentIsComplete("web", 4, "1")
	s.budgetAllows("web", 1)
	if err := s.evict(pods[0].Name); err != nil {
		s.Errorf("an eviction that the budget allows: %v", err)
	}
	s.eventually("the evicted pod is deleted", convergeTimeout, func(ctx context.Context) error {
		_, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, pods[0].Name, metav1.GetOptions{})
		return expectNotFound(err)
	})
	s.deploymentIsComplete("web", 4, "1")
}

func (s *scenario) evict(pod string) error {
	return s.client.PolicyV1().Evictions(s.namespace).Evict(s.Context(), &policy.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: s.namespace},
	})
}

func (s *scenario) budgetAllows(name string, disruptions int32) {
	s.Helper()
	s.eventually(fmt.Sprintf("budget %s allows %d disruptions", name, disruptions), convergeTimeout, func(ctx context.Context) error {
		budget, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (budget.Status.ObservedGeneration < budget.Generation || budget.Status.DisruptionsAllowed != disruptions ||
			budget.Status.CurrentHealthy != 3+disruptions) {
			err = fmt.Errorf("status %+v", budget.Status)
		}
		return err
	})
}

// testNodeRemoval shows that the pods of a node that was deleted are deleted too.
func testNodeRemoval(s *scenario) {
	key := s.reservedNodes(1)
	pod := newPod("alone")
	useReserved(&pod.Spec, key)
	create(s, s.client.CoreV1().Pods(s.namespace).Create, pod)
	s.allRunOn(s.namespace+"-0", 1)
	if err := s.client.CoreV1().Nodes().Delete(s.Context(), s.namespace+"-0", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	// The pod garbage collector looks every 20 s, and waits for 40 s whether the node comes back.
	s.eventually("the pod of the deleted node is deleted", time.Minute+convergeTimeout, func(ctx context.Context) error {
		_, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, "alone", metav1.GetOptions{})
		return expectNotFound(err)
	})
}

// testCertificates shows that an approved request of a client certificate is signed with the server's CA.
func testCertificates(s *scenario) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(s.T)
	request := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: s.namespace},
	}, key))(s.T)
	requests := s.client.CertificatesV1().CertificateSigningRequests()
	csr := create(s, requests.Create, &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: certificates.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			SignerName: certificates.KubeAPIServerClientSignerName,
			Usages:     []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth},
		},
	})
	csr.Status.Conditions = append(csr.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: certificates.CertificateApproved, Status: core.ConditionTrue, Reason: "Test",
	})
	must(requests.UpdateApproval(s.Context(), csr.Name, csr, metav1.UpdateOptions{}))(s.T)
	s.eventually("the certificate is signed", convergeTimeout, func(ctx context.Context) (err error) {
		csr, err = requests.Get(ctx, csr.Name, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("conditions %v", csr.Status.Conditions)
		}
		return err
	})
	block, _ := pem.Decode(csr.Status.Certificate)
	certificate := must(x509.ParseCertificate(block.Bytes))(s.T)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(readFile(s.T, filepath.Join(s.directory, "pki", "ca.crt"))))
	_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		s.Errorf("the certificate is not one of the server's CA: %v", err)
	}
}

// testAggregatedRole shows that a cluster role collects the rules of those that it selects.
func testAggregatedRole(s *scenario) {
	roles := s.client.RbacV1().ClusterRoles()
	rule := rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	create(s, roles.Create, &rbac.ClusterRole{ObjectMeta: named(s.namespace), Rules: []rbac.PolicyRule{rule}})
	create(s, roles.Create, &rbac.ClusterRole{
		ObjectMeta:      metav1.ObjectMeta{Name: s.namespace + "-all"},
		AggregationRule: &rbac.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{*selecting(s.namespace)}},
	})
	s.eventually("the rules are aggregated", convergeTimeout, func(ctx context.Context) error {
		role, err := roles.Get(ctx, s.namespace+"-all", metav1.GetOptions{})
		if err == nil && (len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Resources, rule.Resources)) {
			err = fmt.Errorf("rules %v", role.Rules)
		}
		return err
	})
}

// testReplicationController shows the oldest of the controllers of pods, and that one pod is replaced.
func testReplicationController(s *scenario) {
	template := podTemplate("old", "image:1")
	create(s, s.client.CoreV1().ReplicationControllers(s.namespace).Create, &core.ReplicationController{
		ObjectMeta: named("old"),
		Spec:       core.ReplicationControllerSpec{Replicas: ptr.To[int32](2), Selector: map[string]string{"app": "old"}, Template: &template},
	})
	pods := s.podsExist("app=old", 2)
	if err := s.client.CoreV1().Pods(s.namespace).Delete(s.Context(), pods[0].Name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.eventually("the deleted pod is replaced", convergeTimeout, func(ctx context.Context) error {
		controller, err := s.client.CoreV1().ReplicationControllers(s.namespace).Get(ctx, "old", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = s.client.CoreV1().Pods(s.namespace).Get(ctx, pods[0].Name, metav1.GetOptions{})
		if err := expectNotFound(err); err != nil || controller.Status.ReadyReplicas != 2 {
			return fmt.Errorf("%v, status %+v", err, controller.Status)
		}
		return nil
	})
}

// testPreemption shows that the scheduler makes room for a pod of a higher priority.
func testPreemption(s *scenario) {
	key := s.reservedNodes(1)
	class := create(s, s.client.SchedulingV1().PriorityClasses().Create, newPriorityClass(s.namespace, 1000))
	deployment := newDeployment("low", 1)
	useReserved(&deployment.Spec.Template.Spec, key)
	requestCPU(&deployment.Spec.Template.Spec, "20")
	create(s, s.client.AppsV1().Deployments(s.namespace).Create, deployment)
	s.deploymentIsComplete("low", 1, "1")

	pod := newPod("high")
	useReserved(&pod.Spec, key)
	requestCPU(&pod.Spec, "20")
	pod.Spec.PriorityClassName = class.Name
	create(s, s.client.CoreV1().Pods(s.namespace).Create, pod)
	s.eventually("the important pod runs and the other waits", convergeTimeout, func(ctx context.Context) error {
		high, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, "high", metav1.GetOptions{})
		if err != nil {
			return err
		}
		low, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, "low", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if high.Status.Phase != core.PodRunning || low.Status.AvailableReplicas != 0 || !isUnavailable(low) {
			return fmt.Errorf("the pod is %s, the deployment's status %+v", high.Status.Phase, low.Status)
		}
		return nil
	})
}

func isUnavailable(deployment *apps.Deployment) bool {
	return slices.ContainsFunc(deployment.Status.Conditions, func(c apps.DeploymentCondition) bool {
		return c.Type == apps.DeploymentAvailable && c.Status == core.ConditionFalse
	})
}
