// Prints how Go's encoding treats the zero values of the fields of the built-in types, one line for each
// struct: its message's name, then the fields of scalars, lists and maps.
//
//	tags   name=omit or name=keep, as the tag `json:",omitempty"` says
//	zeros  the fields that an object still has after it was decoded with the zero value in each of them
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	resource "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// A value with its own decoder is none of scalar, list and map, whatever it is made of.
var decoder = reflect.TypeFor[json.Unmarshaler]()

// structs collects t and all structs below it, by the names of their messages.
func structs(t reflect.Type, found map[string]reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		structs(t.Elem(), found)
	case reflect.Struct:
		path := strings.Split(t.PkgPath(), "/")
		if len(path) < 2 || reflect.PointerTo(t).Implements(decoder) {
			return
		}
		name := strings.Join(path[len(path)-2:], ".") + "." + t.Name()
		if found[name] != nil {
			return
		}
		found[name] = t
		for i := range t.NumField() {
			structs(t.Field(i).Type, found)
		}
	}
}

// zero returns the JSON of the zero value of a scalar, list or map, or of a pointer to one, and else nil.
func zero(t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(decoder) {
		return nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return false
	case reflect.Int32, reflect.Int64, reflect.Float64:
		return 0
	case reflect.String:
		return ""
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return ""
		}
		return []any{}
	case reflect.Map:
		return map[string]any{}
	}
	return nil
}

// fields returns the named fields of a struct that have a zero value, in their order.
func fields(t reflect.Type) []reflect.StructField {
	var all []reflect.StructField
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" && zero(field.Type) != nil {
			all = append(all, field)
		}
	}
	return all
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

func tags(t reflect.Type) []string {
	var all []string
	for _, field := range fields(t) {
		_, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		verdict := "keep"
		for _, option := range strings.Split(options, ",") {
			switch {
			case option == "omitempty" && field.Type.Kind() != reflect.Pointer:
				verdict = "omit"
			case option == "omitzero":
				log.Fatalf("%s.%s has omitzero", t, field.Name)
			}
		}
		all = append(all, jsonName(field)+"="+verdict)
	}
	return all
}

func zeros(t reflect.Type) []string {
	given := map[string]any{}
	for _, field := range fields(t) {
		given[jsonName(field)] = zero(field.Type)
	}
	body, err := json.Marshal(given)
	if err != nil {
		log.Fatal(err)
	}
	object := reflect.New(t)
	if err := json.Unmarshal(body, object.Interface()); err != nil {
		log.Fatalf("%s: %v", t, err)
	}
	if body, err = json.Marshal(object.Interface()); err != nil {
		log.Fatalf("%s: %v", t, err)
	}
	kept := map[string]any{}
	if err := json.Unmarshal(body, &kept); err != nil {
		log.Fatalf("%s: %v", t, err)
	}
	var all []string
	for _, field := range fields(t) {
		if _, ok := kept[jsonName(field)]; ok {
			all = append(all, jsonName(field))
		}
	}
	return all
}

func main() {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistration.AddToScheme, apps.AddToScheme, authentication.AddToScheme,
		authorization.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		batch.AddToScheme, certificates.AddToScheme, coordination.AddToScheme, core.AddToScheme,
		discovery.AddToScheme, events.AddToScheme, flowcontrol.AddToScheme, networking.AddToScheme,
		node.AddToScheme, policy.AddToScheme, rbac.AddToScheme, resource.AddToScheme,
		scheduling.AddToScheme, storage.AddToScheme, apiextensions.AddToScheme,
		apiregistration.AddToScheme, meta.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			log.Fatal(err)
		}
	}
	found := map[string]reflect.Type{}
	for _, t := range scheme.AllKnownTypes() {
		structs(t, found)
	}
	// What is served as v1 and is v1beta1 in these versions of the modules.
	structs(reflect.TypeFor[admissionregistrationv1beta1.MutatingAdmissionPolicy](), found)
	structs(reflect.TypeFor[admissionregistrationv1beta1.MutatingAdmissionPolicyBinding](), found)
	for name, t := range found {
		if promoted := strings.Replace(name, ".v1beta1.", ".v1.", 1); found[promoted] == nil {
			found[promoted] = t
		}
	}
	facts := tags
	if len(os.Args) > 1 && os.Args[1] == "zeros" {
		facts = zeros
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(strings.Join(append([]string{name}, facts(found[name])...), " "))
	}
}
