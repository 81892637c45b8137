package main

import (
	"encoding/json"
	"log"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The types with a JSON form of their own.
var specialForms = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():            "!time",
	reflect.TypeFor[meta.MicroTime]():       "!micro",
	reflect.TypeFor[resource.Quantity]():    "!quantity",
	reflect.TypeFor[intstr.IntOrString]():   "!intstr",
	reflect.TypeFor[runtime.RawExtension](): "!raw",
	reflect.TypeFor[meta.FieldsV1]():        "!raw",
	reflect.TypeFor[apiextensions.JSON]():   "!raw",
}

var typeMeta = reflect.TypeFor[meta.TypeMeta]()

// field is a field of a message.
type field struct {
	reflect.StructField
	number, name string
	inline       bool
	omitempty    bool
}

func sortedKeys[V any](of map[string]V) []string {
	return slices.Sorted(maps.Keys(of))
}

// messageName returns the name of a struct's message, such as core.v1.Pod.
func messageName(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	if len(path) < 2 {
		log.Fatalf("%s is not a type of an API module", t)
	}
	return strings.Join(path[len(path)-2:], ".") + "." + t.Name()
}

// isUnion reports whether the JSON of a message is that of its one member that is set.
func isUnion(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && specialForms[t] == "" &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// fields returns the fields of a message in their order.
func fields(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		of := t.Field(i)
		wire := strings.Split(of.Tag.Get("protobuf"), ",")
		if len(wire) < 2 {
			if of.Type != typeMeta {
				log.Fatalf("%s.%s has no protobuf tag", t, of.Name)
			}
			continue
		}
		name, options, _ := strings.Cut(of.Tag.Get("json"), ",")
		found := field{StructField: of, number: wire[1], name: name}
		for _, option := range strings.Split(options, ",") {
			switch option {
			case "inline":
				found.inline = true
			case "omitempty":
				found.omitempty = true
			case "omitzero":
				// Go omits zero structs, for which the tables have no mark: they are never set here.
				if kind := of.Type.Kind(); kind != reflect.Struct {
					log.Fatalf("%s.%s is a %s with omitzero", t, of.Name, kind)
				}
			}
		}
		if name == "" {
			found.name = protobufName(of, wire)
		}
		all = append(all, found)
	}
	return all
}

// protobufName returns the name of a field without a JSON name.
func protobufName(of reflect.StructField, wire []string) string {
	for _, part := range wire {
		if name, ok := strings.CutPrefix(part, "name="); ok {
			return name
		}
	}
	return strings.ToLower(of.Name[:1]) + of.Name[1:]
}

// collect adds t and all messages below it.
func collect(t reflect.Type, messages map[string]reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(t.Elem(), messages)
	case reflect.Struct:
		if specialForms[t] != "" || messages[messageName(t)] != nil {
			return
		}
		messages[messageName(t)] = t
		for _, field := range fields(t) {
			collect(field.Type, messages)
		}
	}
}

// typeOf returns a type in the notation of types.txt.
func typeOf(t reflect.Type) string {
	if form := specialForms[t]; form != "" {
		return form
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeOf(t.Elem())
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int32:
		return "i"
	case reflect.Int64:
		return "l"
	case reflect.Float64:
		return "d"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "B"
		}
		return "*" + typeOf(t.Elem())
	case reflect.Map:
		// A list as the value of a map is a message with the field items.
		if value := typeOf(t.Elem()); value == "*s" {
			return "%!items"
		} else if t.Key().Kind() == reflect.String && !strings.HasPrefix(value, "*") {
			return "%" + value
		}
	case reflect.Struct:
		if isUnion(t) {
			return "|" + messageName(t)
		}
		return messageName(t)
	}
	log.Fatalf("types.txt has no notation for %s", t)
	return ""
}

// isScalar reports whether a value in the notation of types.txt has no parts.
func isScalar(notation string) bool {
	return strings.Contains("sbildB", notation)
}

// typeWords returns the fields of a line of types.txt.
func typeWords(t reflect.Type) []string {
	words := []string{}
	for _, field := range fields(t) {
		notation := typeOf(field.Type)
		word := field.number + "="
		if field.inline {
			word += "^"
		}
		word += field.name + ":"
		if field.Type.Kind() == reflect.Pointer {
			word += "&"
		}
		word += notation
		switch {
		case isUnion(t):
		case isScalar(notation) && field.omitempty && field.Type.Kind() != reflect.Pointer:
			word += "?"
		case (notation[0] == '*' || notation[0] == '%') && !field.omitempty:
			word += "!"
		}
		words = append(words, word)
	}
	return words
}
