package controllerruntime

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"watchet/tests/testserver"
)

func TestSeveralEnvironmentsAtOnce(t *testing.T) {
	t.Parallel()
	const count = 4
	var starts sync.WaitGroup
	environments := make([]*envtest.Environment, count)
	configs := make([]*rest.Config, count)
	errs := make([]error, count)
	for index := range environments {
		environments[index] = &envtest.Environment{}
		starts.Go(func() { configs[index], errs[index] = environments[index].Start() })
	}
	starts.Wait()
	for index, env := range environments {
		if errs[index] != nil {
			t.Fatalf("start: %v", errs[index])
		}
		defer func() {
			if err := env.Stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		}()
	}
	for index, config := range configs {
		create(t, newClient(t, config, client.Options{}), configMap(fmt.Sprintf("of-%d", index), nil, nil))
	}
	for index, config := range configs {
		var found corev1.ConfigMapList
		c := newClient(t, config, client.Options{})
		if err := c.List(t.Context(), &found, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		// Nothing is there but what was made: no controller runs.
		if len(found.Items) != 1 || found.Items[0].Name != fmt.Sprintf("of-%d", index) {
			t.Errorf("environment %d has %v", index, found.Items)
		}
	}
}

func TestRestartOnTheSameData(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	environment := func() *envtest.Environment {
		env := &envtest.Environment{}
		env.ControlPlane.Etcd = &envtest.Etcd{DataDir: directory}
		return env
	}
	first := environment()
	config, err := first.Start()
	if err != nil {
		t.Fatal(err)
	}
	made := configMap("kept", nil, map[string]string{"a": "b"})
	create(t, newClient(t, config, client.Options{}), made)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	_, c := start(t, environment())
	var kept corev1.ConfigMap
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(made), &kept); err != nil {
		t.Fatal(err)
	}
	if kept.UID != made.UID || kept.ResourceVersion != made.ResourceVersion || kept.Data["a"] != "b" {
		t.Errorf("%v became %v", made, kept)
	}
}

// The same environment starts again after it was stopped, with new directories.
func TestStartAgain(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	for range 2 {
		config, err := env.Start()
		if err != nil {
			t.Fatal(err)
		}
		create(t, newClient(t, config, client.Options{}), configMap("new", nil, nil))
		if err := env.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOutputIsAttached(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{AttachControlPlaneOutput: true}
	server, etcd := &testserver.LockedBuffer{}, &testserver.LockedBuffer{}
	env.ControlPlane.GetAPIServer().Err = server
	env.ControlPlane.Etcd = &envtest.Etcd{Err: etcd}
	start(t, env)
	// What the server prints is copied while it runs.
	eventually(t, "the server logs", func() error {
		if count := strings.Count(server.String(), "flag=--allow-privileged\n"); count != 1 {
			return fmt.Errorf("--allow-privileged is logged %d times:\n%s", count, server)
		}
		return nil
	})
	eventually(t, "etcd logs", func() error {
		if !strings.Contains(etcd.String(), "ready") {
			return fmt.Errorf("it logged %q", etcd)
		}
		return nil
	})
}

func TestFlagsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	arguments := env.ControlPlane.GetAPIServer().Configure()
	arguments.Set("v", "2").Append("feature-gates", "WatchList=true").Set("audit-log-maxage", "1").
		Set("enable-admission-plugins", "NamespaceLifecycle").Set("service-cluster-ip-range", "10.7.0.0/24")
	_, c := start(t, env)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	create(t, c, service)
	if !strings.HasPrefix(service.Spec.ClusterIP, "10.7.0.") {
		t.Errorf("the service has the address %s", service.Spec.ClusterIP)
	}
}

// A pod needs no service account, and gets none, while the plugin is disabled.
func TestServiceAccountAdmissionIsDisabled(t *testing.T) {
	t.Parallel()
	_, c := start(t, &envtest.Environment{})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
	}
	create(t, c, pod)
	if pod.Spec.ServiceAccountName != "" || len(pod.Spec.Volumes) != 0 {
		t.Errorf("the pod got %q and %v", pod.Spec.ServiceAccountName, pod.Spec.Volumes)
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	_, c := start(t, env)
	user, err := env.AddUser(envtest.User{Name: "jane", Groups: []string{"dev"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	clientset := kubernetes.NewForConfigOrDie(user.Config())
	reviews := clientset.AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if info := review.Status.UserInfo; info.Username != "jane" || info.Groups[0] != "dev" {
		t.Errorf("the user is %v", info)
	}
	kubectl, err := user.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	// envtest starts the server with --authorization-mode=RBAC.
	if _, stderr, err := kubectl.Run("get", "namespaces"); err == nil {
		t.Errorf("a user without a role lists namespaces: %s", stderr)
	}
	create(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "dev"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "dev"}},
	})
	var stdout io.Reader
	eventually(t, "the role takes effect", func() error {
		output, stderr, err := kubectl.Run("get", "namespaces", "--output=name")
		if err != nil {
			return fmt.Errorf("kubectl: %w: %s", err, stderr)
		}
		stdout = output
		return nil
	})
	var names bytes.Buffer
	if _, err := names.ReadFrom(stdout); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(names.String(), "namespace/default") {
		t.Errorf("kubectl printed %q", names.String())
	}
	anonymous := rest.AnonymousClientConfig(user.Config())
	_, err = kubernetes.NewForConfigOrDie(anonymous).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("without a credential: %v", err)
	}
}

// Service account tokens are signed and verified with the key and the certificate that envtest makes.
func TestTokensOfServiceAccounts(t *testing.T) {
	t.Parallel()
	config, c := start(t, &envtest.Environment{})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
	create(t, c, account)
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	bearer := rest.AnonymousClientConfig(config)
	bearer.BearerToken = request.Status.Token
	reviews := kubernetes.NewForConfigOrDie(bearer).AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if name := review.Status.UserInfo.Username; name != "system:serviceaccount:default:robot" {
		t.Errorf("the user is %s", name)
	}
}

// As with the original, nothing deletes what is in a namespace, nor collects garbage.
func TestNoControllersRun(t *testing.T) {
	t.Parallel()
	_, c := start(t, &envtest.Environment{})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	orphan := configMap("orphan", nil, nil)
	orphan.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: "absent"}}
	create(t, c, namespace, orphan)
	if err := c.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	// Controllers would act within milliseconds on an idle machine.
	time.Sleep(2 * time.Second)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(orphan), orphan); err != nil {
		t.Errorf("an object whose owner does not exist: %v", err)
	}
	key := client.ObjectKeyFromObject(namespace)
	if err := c.Get(t.Context(), key, namespace); err != nil {
		t.Fatalf("the namespace is gone: %v", err)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("the namespace is %s", namespace.Status.Phase)
	}
}
