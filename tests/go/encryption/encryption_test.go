// Package encryption checks that values which watchet encrypts at rest are those of kube-apiserver: upstream's own code
// decrypts them, and watchet decrypts what upstream's code has encrypted.
package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kms/pkg/service"

	"watchet/tests/testserver"
)

const (
	key16 = "MDEyMzQ1Njc4OWFiY2RlZg=="
	key24 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
	key32 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// Patience bounds what takes milliseconds on an idle machine.
const patience = 120 * time.Second

func TestValuesAreThoseOfKubeAPIServer(t *testing.T) {
	socket := startPlugin(t)
	keys := func(provider, secret string) string {
		return fmt.Sprintf("{%s: {keys: [{name: key1, secret: %s}]}}", provider, secret)
	}
	providers := map[string]string{
		"aescbc-16": keys("aescbc", key16),
		"aescbc-24": keys("aescbc", key24),
		"aescbc-32": keys("aescbc", key32),
		"aesgcm-16": keys("aesgcm", key16),
		"aesgcm-24": keys("aesgcm", key24),
		"aesgcm-32": keys("aesgcm", key32),
		"secretbox": keys("secretbox", key32),
		"kms":       fmt.Sprintf("{kms: {apiVersion: v2, name: test, endpoint: 'unix://%s'}}", socket),
	}
	endpoint := testserver.StartEtcd(t)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	for name, provider := range providers {
		t.Run(name, func(t *testing.T) { exchange(t, endpoint, etcd, name, provider) })
	}
}

// exchange reads a value of watchet with upstream's code, and the reverse.
func exchange(t *testing.T, endpoint string, etcd *clientv3.Client, name, provider string) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n" +
		"resources: [{resources: [secrets], providers: [" + provider + "]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// A prefix of its own, because the values of another provider cannot be read.
	prefix := "/" + name
	server := testserver.StartOnEtcd(t, endpoint, "--etcd-prefix="+prefix, "--encryption-provider-config="+path)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	upstream, err := encryptionconfig.LoadEncryptionConfig(ctx, path, false, "test")
	if err != nil {
		t.Fatal(err)
	}
	transformer := upstream.Transformers[schema.GroupResource{Resource: "secrets"}]
	client := kubernetes.NewForConfigOrDie(server.Config())
	secrets := client.CoreV1().Secrets("default")

	written := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "written"},
		StringData: map[string]string{"password": "correct horse"},
	}
	if _, err := secrets.Create(ctx, written, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	key := prefix + "/secrets/default/written"
	stored, err := etcd.Get(ctx, key)
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("%v: %v", key, err)
	}
	if raw := string(stored.Kvs[0].Value); !strings.HasPrefix(raw, "k8s:enc:") {
		t.Fatalf("stored as %q", raw)
	}
	plain, stale, err := transformer.TransformFromStorage(ctx, stored.Kvs[0].Value, value.DefaultContext(key))
	if err != nil || stale {
		t.Fatalf("upstream cannot decrypt, or would write it again (stale: %v): %v", stale, err)
	}
	var secret corev1.Secret
	if err := json.Unmarshal(plain, &secret); err != nil {
		t.Fatal(err)
	}
	if secret.Name != "written" || string(secret.Data["password"]) != "correct horse" {
		t.Fatalf("decrypted %s", plain)
	}

	watch, err := secrets.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=copied"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	secret.Name = "copied"
	copied, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	key = prefix + "/secrets/default/copied"
	encrypted, err := transformer.TransformToStorage(ctx, copied, value.DefaultContext(key))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(ctx, key, string(encrypted)); err != nil {
		t.Fatal(err)
	}
	read, err := secrets.Get(ctx, "copied", metav1.GetOptions{})
	if err != nil || string(read.Data["password"]) != "correct horse" {
		t.Fatalf("read %v: %v", read, err)
	}
	select {
	case event := <-watch.ResultChan():
		watched, ok := event.Object.(*corev1.Secret)
		if !ok || string(watched.Data["password"]) != "correct horse" {
			t.Fatalf("watched %v", event)
		}
	case <-ctx.Done():
		t.Fatal("no event of the value that upstream encrypted")
	}
}

// startPlugin serves a KMS plugin with upstream's library and returns the path of its socket.
func startPlugin(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(directory, "kms.sock")
	block, err := aes.NewCipher([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	server := service.NewGRPCService(socket, patience, plugin{aead})
	go func() {
		// The end of the test closes the listener.
		_ = server.ListenAndServe()
	}()
	t.Cleanup(func() {
		server.Shutdown()
		_ = os.RemoveAll(directory)
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// plugin encrypts with one key.
type plugin struct{ aead cipher.AEAD }

const keyID = "the-only-key"

func (p plugin) Status(context.Context) (*service.StatusResponse, error) {
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: keyID}, nil
}

func (p plugin) Encrypt(_ context.Context, _ string, plaintext []byte) (*service.EncryptResponse, error) {
	nonce := make([]byte, p.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return &service.EncryptResponse{
		Ciphertext:  p.aead.Seal(nonce, nonce, plaintext, nil),
		KeyID:       keyID,
		Annotations: map[string][]byte{"version.kms.test.example": []byte("1")},
	}, nil
}

func (p plugin) Decrypt(_ context.Context, _ string, request *service.DecryptRequest) ([]byte, error) {
	size := p.aead.NonceSize()
	if request.KeyID != keyID || string(request.Annotations["version.kms.test.example"]) != "1" || len(request.Ciphertext) < size {
		return nil, errors.New("not encrypted with this key")
	}
	return p.aead.Open(nil, request.Ciphertext[:size], request.Ciphertext[size:], nil)
}
