package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// encoding is an object in the two encodings of Go.
type encoding struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	JSON       []byte `json:"json"`
	Protobuf   []byte `json:"protobuf"`
}

// versionPlaceholder stands for the resourceVersion in the protobuf encoding; JSON has none, as stored objects.
const versionPlaceholder = "RRRR"

// printEncodings prints objects of every kind with random members, one a line: first an object with every member, then
// objects with some of them.
func printEncodings(kinds map[schema.GroupVersionKind]reflect.Type, seed uint64, count int) {
	names := make([]schema.GroupVersionKind, 0, len(kinds))
	for kind := range kinds {
		names = append(names, kind)
	}
	slices.SortFunc(names, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	for index, kind := range names {
		for i := range count {
			f := filler{random: rand.New(rand.NewPCG(seed, uint64(i))), chance: 1}
			if i > 0 {
				f.chance = f.random.Float64()
			}
			line, err := json.Marshal(f.encoding(kind, kinds[kind], index*count+i))
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(string(line))
		}
	}
}

// filler fills Go values with random ones.
type filler struct {
	random *rand.Rand
	// chance is the probability that a pointer, list, map or scalar is set.
	chance float64
}

// encoding returns a random object of a kind, in the state in which Go decodes its JSON.
func (f *filler) encoding(kind schema.GroupVersionKind, t reflect.Type, number int) encoding {
	value := reflect.New(t)
	f.fill(value.Elem(), 0)
	value.Elem().FieldByName("TypeMeta").Set(reflect.ValueOf(meta.TypeMeta{}))
	object := value.Interface().(runtime.Object)
	metadata := value.Interface().(meta.Object)
	metadata.SetName(fmt.Sprintf("object-%d", number))
	metadata.SetNamespace("default")
	metadata.SetResourceVersion("")
	object.GetObjectKind().SetGroupVersionKind(kind)
	text, err := json.Marshal(object)
	if err != nil {
		log.Fatalf("%s: %v", kind, err)
	}
	decoded := reflect.New(t).Interface().(runtime.Object)
	if err := json.Unmarshal(text, decoded); err != nil {
		log.Fatalf("%s: %v: %s", kind, err, text)
	}
	decoded.(meta.Object).SetResourceVersion(versionPlaceholder)
	decoded.GetObjectKind().SetGroupVersionKind(kind)
	var message bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(decoded, &message); err != nil {
		log.Fatalf("%s: %v", kind, err)
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	return encoding{apiVersion, name, text, message.Bytes()}
}

func (f *filler) isSet() bool { return f.random.Float64() < f.chance }

var texts = []string{"a", "web-0", "nginx:1.27", "line\nbreak \"quoted\" \\", "größe \U0001f600", "<&>", ""}

// depthMax bounds messages that contain themselves.
const depthMax = 12

func (f *filler) fill(value reflect.Value, depth int) {
	t := value.Type()
	if special, ok := f.special(t); ok {
		value.Set(reflect.ValueOf(special))
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		if f.isSet() && depth < depthMax {
			value.Set(reflect.New(t.Elem()))
			f.fill(value.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range t.NumField() {
			f.fill(value.Field(i), depth+1)
		}
	case reflect.Slice:
		f.fillSlice(value, depth)
	case reflect.Map:
		if !f.isSet() || depth >= depthMax {
			return
		}
		value.Set(reflect.MakeMap(t))
		for range 1 + f.random.IntN(3) {
			key, item := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			key.SetString(fmt.Sprintf("%c\u00e9%d", 'a'+f.random.IntN(26), f.random.IntN(100)))
			f.fill(item, depth+1)
			value.SetMapIndex(key, item)
		}
	default:
		f.fillScalar(value)
	}
}

func (f *filler) fillSlice(value reflect.Value, depth int) {
	if !f.isSet() || depth >= depthMax {
		return
	}
	t := value.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		value.SetBytes([]byte{0, 0xff, byte(f.random.IntN(256))}[:f.random.IntN(4)])
		return
	}
	value.Set(reflect.MakeSlice(t, 1+f.random.IntN(2), 2))
	for i := range value.Len() {
		f.fill(value.Index(i), depth+1)
	}
}

func (f *filler) fillScalar(value reflect.Value) {
	if !f.isSet() {
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(texts[f.random.IntN(len(texts))])
	case reflect.Bool:
		value.SetBool(f.random.IntN(2) == 1)
	case reflect.Int32:
		value.SetInt(int64(int32(f.random.Uint32())))
	case reflect.Int64:
		value.SetInt(int64(f.random.Uint64()) >> f.random.IntN(64))
	case reflect.Float64:
		value.SetFloat(float64(f.random.IntN(1000)-500) / 8)
	default:
		log.Fatalf("no random value for a %s", value.Type())
	}
}

// special returns a value of a type with a JSON form of its own.
func (f *filler) special(t reflect.Type) (any, bool) {
	raw := []byte([]string{`{"a":{"b":[1,2.5,null,"x"]}}`, `{}`, `{"f:metadata":{"f:labels":{".":{}}}}`}[f.random.IntN(3)])
	seconds := f.random.Int64N(4_000_000_000) - 1_000_000_000
	switch t {
	case reflect.TypeFor[meta.Time]():
		if !f.isSet() {
			return meta.Time{}, true
		}
		return meta.Unix(seconds, 0), true
	case reflect.TypeFor[meta.MicroTime]():
		if !f.isSet() {
			return meta.MicroTime{}, true
		}
		return meta.MicroTime{Time: time.Unix(seconds, f.random.Int64N(1_000_000)*1000)}, true
	case reflect.TypeFor[resource.Quantity]():
		amounts := []string{"0", "100m", "1500Mi", "2", "1e3", "0.5", "123456789123"}
		return resource.MustParse(amounts[f.random.IntN(len(amounts))]), true
	case reflect.TypeFor[intstr.IntOrString]():
		if f.random.IntN(2) == 0 {
			return intstr.FromInt32(int32(f.random.Uint32())), true
		}
		return intstr.FromString("25%"), true
	case reflect.TypeFor[runtime.RawExtension]():
		return runtime.RawExtension{Raw: raw}, true
	case reflect.TypeFor[meta.FieldsV1]():
		return meta.FieldsV1{Raw: raw}, true
	case reflect.TypeFor[apiextensions.JSON]():
		return apiextensions.JSON{Raw: raw}, true
	}
	return f.union(t)
}

// union returns a value of a type whose JSON is that of its one member that is set.
func (f *filler) union(t reflect.Type) (any, bool) {
	schema := apiextensions.JSONSchemaProps{Type: "string"}
	is := f.random.IntN(2) == 0
	switch t {
	case reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():
		if is {
			return apiextensions.JSONSchemaPropsOrBool{Allows: f.random.IntN(2) == 0}, true
		}
		return apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: &schema}, true
	case reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():
		if is {
			return apiextensions.JSONSchemaPropsOrArray{JSONSchemas: []apiextensions.JSONSchemaProps{schema, {}}}, true
		}
		return apiextensions.JSONSchemaPropsOrArray{Schema: &schema}, true
	case reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray]():
		if is {
			return apiextensions.JSONSchemaPropsOrStringArray{Property: []string{"a", "b"}}, true
		}
		return apiextensions.JSONSchemaPropsOrStringArray{Schema: &schema}, true
	}
	return nil, false
}
