package controllerruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"watchet/tests/testserver"
)

// assetsCommand is the README's first line of a suite; TestMain runs it.
const assetsCommand = `eval "$(watchet envtest-assets)"`

func recipe(t *testing.T) *rest.Config {
	env := &envtest.Environment{CRDDirectoryPaths: []string{"config/crd/bases"}}
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cfg
}

func recipeOfAnExistingCluster(t *testing.T) *rest.Config {
	env := &envtest.Environment{UseExistingCluster: ptr.To(true), CRDDirectoryPaths: []string{"config/crd/bases"}}
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cfg
}

// What the README tells users of envtest is what runs here, word for word.
func TestTheRecipesAreThoseOfTheREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## Test an operator with it\n")
	if !found {
		t.Fatal("the README has no section on operators' tests")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains(section, "$ "+assetsCommand+"\n") {
		t.Errorf("the README does not have %s", assetsCommand)
	}
	recipes := 0
	for rest := section; ; {
		_, after, found := strings.Cut(rest, "```go\n")
		if !found {
			break
		}
		block, after, _ := strings.Cut(after, "```\n")
		rest = after
		if !strings.Contains(block, "envtest.Environment") {
			continue
		}
		recipes++
		indented := "\t" + strings.Join(strings.Split(strings.TrimSpace(block), "\n"), "\n\t") + "\n"
		if !strings.Contains(string(source), indented) {
			t.Errorf("this recipe of the README is not tested:\n%s", block)
		}
	}
	if recipes != 2 {
		t.Errorf("the README has %d recipes, not 2", recipes)
	}
}

func TestTheRecipeWithAssets(t *testing.T) {
	t.Parallel()
	works(t, recipe(t))
}

// It sets KUBECONFIG, so it does not run beside others.
func TestTheRecipeWithAnExistingCluster(t *testing.T) {
	server := testserver.Start(t, testserver.Embedded)
	t.Setenv("KUBECONFIG", server.Kubeconfig())
	t.Setenv("KUBEBUILDER_ASSETS", "")
	works(t, recipeOfAnExistingCluster(t))
}

// works shows that the definitions are installed and objects are served.
func works(t *testing.T, config *rest.Config) {
	t.Helper()
	scheme := newScheme(t)
	c := newClient(t, config, client.Options{Scheme: scheme})
	var definition apiextensionsv1.CustomResourceDefinition
	key := client.ObjectKey{Name: "cronjobs.batch.tutorial.example.com"}
	if err := c.Get(t.Context(), key, &definition); err != nil {
		t.Fatal(err)
	}
	var namespace corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: "default"}, &namespace); err != nil {
		t.Fatal(err)
	}
}
