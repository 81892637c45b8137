// Who a client is: tokens of service accounts, token reviews and impersonation.
package clientgo

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestIdentity(t *testing.T) {
	runCases(t, []testCase{
		{"TokenRequest", tokenRequest},
		{"Impersonation", impersonation},
	})
}

// tokenRequest makes a token that is bound to a pod, and uses it until the pod is deleted.
func tokenRequest(t *testing.T, c *cluster) {
	accounts := c.client.CoreV1().ServiceAccounts(c.namespace)
	account, err := accounts.Create(c.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	pod := newPod("a")
	pod.Spec.ServiceAccountName = "robot"
	pod, err = c.client.CoreV1().Pods(c.namespace).Create(c.ctx, pod, metav1.CreateOptions{})
	must(t, err)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(900)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	granted, err := accounts.CreateToken(c.ctx, "robot", request, metav1.CreateOptions{})
	must(t, err)
	if granted.Status.Token == "" || granted.Status.ExpirationTimestamp.IsZero() || *granted.Spec.ExpirationSeconds != 900 {
		t.Fatalf("granted %+v", granted)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: granted.Status.Token}}
	review, err = c.client.AuthenticationV1().TokenReviews().Create(c.ctx, review, metav1.CreateOptions{})
	must(t, err)
	user := "system:serviceaccount:" + c.namespace + ":robot"
	if !review.Status.Authenticated || review.Status.User.Username != user || review.Status.User.UID != string(account.UID) ||
		!slices.Contains(review.Status.User.Groups, "system:serviceaccounts:"+c.namespace) ||
		!slices.Equal(review.Status.User.Extra["authentication.kubernetes.io/pod-name"], []string{"a"}) {
		t.Errorf("review %+v", review.Status)
	}

	config := rest.AnonymousClientConfig(c.config)
	config.ContentType = c.encoding
	config.BearerToken = granted.Status.Token
	robot := kubernetes.NewForConfigOrDie(config)
	if got := whoAmI(t, c, robot); got.Username != user {
		t.Errorf("the robot is %+v", got)
	}
	must(t, c.client.CoreV1().Pods(c.namespace).Delete(c.ctx, "a", *metav1.NewDeleteOptions(0)))
	await(c.ctx, t, "the token of the deleted pod is refused", func() error {
		_, err := robot.AuthenticationV1().SelfSubjectReviews().Create(c.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if apierrors.IsUnauthorized(err) {
			return nil
		}
		return fmt.Errorf("the token is accepted, or another error: %v", err)
	})
	request.Spec.BoundObjectRef.UID = "another-uid"
	_, err = accounts.CreateToken(c.ctx, "robot", request, metav1.CreateOptions{})
	mustBe(t, "NotFound or Conflict", func(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }, err)
	request.Spec.BoundObjectRef = nil
	request.Spec.ExpirationSeconds = new(int64(1))
	_, err = accounts.CreateToken(c.ctx, "robot", request, metav1.CreateOptions{})
	mustBe(t, "Invalid", apierrors.IsInvalid, err)
}

func impersonation(t *testing.T, c *cluster) {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "alice", UID: "42", Groups: []string{"developers"}, Extra: map[string][]string{"example.com/Team": {"a", "b"}},
	}
	got := whoAmI(t, c, kubernetes.NewForConfigOrDie(config))
	if got.Username != "alice" || got.UID != "42" ||
		!slices.Equal(got.Groups, []string{"developers", "system:authenticated"}) ||
		!slices.Equal(got.Extra["example.com/team"], []string{"a", "b"}) {
		t.Errorf("impersonated user %+v", got)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + c.namespace + ":robot"}
	got = whoAmI(t, c, kubernetes.NewForConfigOrDie(config))
	if !slices.Equal(got.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:" + c.namespace, "system:authenticated"}) {
		t.Errorf("groups of an impersonated service account: %q", got.Groups)
	}
	// The anonymous user may not ask who it is.
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:anonymous"}
	_, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().
		Create(c.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	mustBe(t, "Forbidden", apierrors.IsForbidden, err)
	// Groups without a user are refused.
	err = c.client.CoreV1().RESTClient().Get().AbsPath("/api").SetHeader("Impersonate-Group", "developers").Do(c.ctx).Error()
	if err == nil || !strings.Contains(err.Error(), "without impersonating a user") {
		t.Errorf("impersonating a group alone: %v", err)
	}
}

// whoAmI returns the user that the server takes the client for.
func whoAmI(t testing.TB, c *cluster, client kubernetes.Interface) authenticationv1.UserInfo {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(c.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	return review.Status.UserInfo
}
