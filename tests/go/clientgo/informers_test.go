package clientgo

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchet/tests/testserver"
)

// TestSharedInformerSyncs is the regression test of gzip members that ended without a sync flush: with
// client-go's defaults (WatchList, gzip) no informer ever synced.
func TestSharedInformerSyncs(t *testing.T) {
	testserver.OnBoth(t, func(t *testing.T, backend testserver.Backend) {
		server := testserver.Start(t, backend)
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(contentType, func(t *testing.T) { syncsConfigMaps(t, server.Config(), contentType) })
		}
	})
}

func syncsConfigMaps(t *testing.T, config *rest.Config, contentType string) {
	config.ContentType = contentType
	client := kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	configMaps := client.CoreV1().ConfigMaps("default")
	prefix := "sync-" + contentType[len(contentType)-4:]
	for i := range 3 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i)}}
		if _, err := configMaps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	lister := factory.Core().V1().ConfigMaps().Lister()
	factory.StartWithContext(ctx)
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("the informer of %v did not sync", informer)
		}
	}
	for i := range 3 {
		if _, err := lister.ConfigMaps("default").Get(fmt.Sprintf("%s-%d", prefix, i)); err != nil {
			t.Error(err)
		}
	}
}
