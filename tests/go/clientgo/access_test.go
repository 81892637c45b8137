package clientgo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestAccess has informers whose user loses access while they run, which kube-apiserver notices only at the next request.
func TestAccess(t *testing.T) {
	runCases(t, []testCase{{"Lost", informerLosesAccess}})
}

// informerLosesAccess checks that an informer keeps its store when its watch ends with an ERROR event of 403, tells its
// handler of watch errors that access is forbidden, and continues by itself when access returns.
func informerLosesAccess(t *testing.T, c *cluster) {
	user := "reader-of-" + c.namespace
	grant := func() {
		roles := c.client.RbacV1()
		rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{rule}}
		_, err := roles.Roles(c.namespace).Create(c.ctx, role, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			must(t, err)
		}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		_, err = roles.RoleBindings(c.namespace).Create(c.ctx, binding, metav1.CreateOptions{})
		must(t, err)
	}
	grant()
	c.createConfigMap(t, "before", "1")

	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = user
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(c.namespace))
	configMaps := factory.Core().V1().ConfigMaps()
	informer, lister := configMaps.Informer(), configMaps.Lister().ConfigMaps(c.namespace)
	var (
		mutex     sync.Mutex
		forbidden int
		deleted   []string
	)
	must(t, informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		mutex.Lock()
		defer mutex.Unlock()
		if apierrors.IsForbidden(err) {
			forbidden++
		}
	}))
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		mutex.Lock()
		defer mutex.Unlock()
		key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		deleted = append(deleted, key)
	}})
	must(t, err)
	runInformer(t, c.ctx, informer)
	// The informer may have been forbidden before the server knew of the role.
	mutex.Lock()
	forbidden = 0
	mutex.Unlock()

	must(t, c.client.RbacV1().RoleBindings(c.namespace).Delete(c.ctx, "reader", metav1.DeleteOptions{}))
	await(c.ctx, t, "a forbidden request of the informer", func() error {
		mutex.Lock()
		defer mutex.Unlock()
		if forbidden == 0 {
			return errors.New("no error of the watch is Forbidden")
		}
		return nil
	})
	c.createConfigMap(t, "unseen", "1")
	if _, err := lister.Get("before"); err != nil {
		t.Errorf("the store of an informer without access has lost an object: %v", err)
	}
	if _, err := lister.Get("unseen"); !apierrors.IsNotFound(err) {
		t.Errorf("an informer without access has an object that was created later: %v", err)
	}

	grant()
	await(c.ctx, t, "the object that was created without access", func() error {
		if _, err := lister.Get("unseen"); err != nil {
			return fmt.Errorf("the informer does not have it: %w", err)
		}
		return nil
	})
	mutex.Lock()
	defer mutex.Unlock()
	if len(deleted) > 0 {
		t.Errorf("deletions that did not occur: %v", deleted)
	}
}
