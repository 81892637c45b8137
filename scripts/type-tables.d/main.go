// Prints one of the tables of the built-in types, generated from the Go types of Kubernetes' API modules.
//
// Usage: type-tables TABLE DISCOVERY
//
// TABLE is the name of a table below; DISCOVERY is the directory api/discovery of k8s.io/kubernetes, whose
// documents list the served resources. The tables contain the kinds of all stable versions and all types that
// they refer to.
//
//	types  a line for each message: its name, then the number, JSON name and type of each field
//	facts  list types, merge rules and defaults of fields
//	zeros  the fields that Go retains when it decodes zero values and encodes them again
//	encodings:SEED:COUNT
//	       objects with random members, COUNT of each kind, in the JSON and the protobuf of Go
//	kinds  the kinds of each group and version, in the macro of crates/schema/src/openapi/kinds.rs
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The types that requests and responses of every group use.
var common = []reflect.Type{
	reflect.TypeFor[meta.DeleteOptions](),
	reflect.TypeFor[meta.PartialObjectMetadata](),
	reflect.TypeFor[meta.Status](),
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: type-tables types|facts|zeros|kinds DISCOVERY\n       type-tables policy DIRECTORY")
	}
	if os.Args[1] == "policy" {
		printPolicy(os.Args[2])
		return
	}
	kinds := goTypes(servedKinds(os.Args[2]))
	if os.Args[1] == "kinds" {
		printKinds(kinds)
		return
	}
	if parameters, ok := strings.CutPrefix(os.Args[1], "encodings:"); ok {
		var seed uint64
		var count int
		if _, err := fmt.Sscanf(parameters, "%d:%d", &seed, &count); err != nil {
			log.Fatalf("encodings: give SEED:COUNT, not %q: %v", parameters, err)
		}
		printEncodings(kinds, seed, count)
		return
	}
	messages := map[string]reflect.Type{}
	for _, root := range append(slices.Collect(maps.Values(kinds)), common...) {
		collect(root, messages)
	}
	line := map[string]func(reflect.Type) []string{
		"types": typeWords,
		"facts": factWords,
		"zeros": zeroWords,
	}[os.Args[1]]
	if line == nil {
		log.Fatalf("%s is not a table", os.Args[1])
	}
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		if words := line(messages[name]); words != nil {
			fmt.Println(strings.Join(append([]string{name}, words...), " "))
		}
	}
}

// goTypes returns the Go types of kinds.
func goTypes(kinds []schema.GroupVersionKind) map[schema.GroupVersionKind]reflect.Type {
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := add(all); err != nil {
			log.Fatal(err)
		}
	}
	types := map[schema.GroupVersionKind]reflect.Type{}
	for _, kind := range kinds {
		if types[kind] = all.AllKnownTypes()[kind]; types[kind] == nil {
			log.Fatalf("%s has no Go type in the modules", kind)
		}
	}
	return types
}
