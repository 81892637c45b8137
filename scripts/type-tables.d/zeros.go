package main

import (
	"encoding/json"
	"log"
	"reflect"
)

// zeroWords returns the fields that remain when Go decodes an object with the zero value in each scalar, list
// and map, and encodes it. Unions have no such object.
func zeroWords(t reflect.Type) []string {
	if isUnion(t) {
		return nil
	}
	given := map[string]any{}
	for _, field := range fields(t) {
		if zero := zero(field.Type); zero != nil && !field.inline {
			given[field.name] = zero
		}
	}
	object := reflect.New(t).Interface()
	recode(t, given, object)
	retained := map[string]any{}
	recode(t, object, &retained)
	words := []string{}
	for _, field := range fields(t) {
		if _, ok := retained[field.name]; ok && given[field.name] != nil {
			words = append(words, field.name)
		}
	}
	return words
}

// recode encodes one value and decodes the result to another.
func recode(t reflect.Type, from, to any) {
	body, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(body, to)
	}
	if err != nil {
		log.Fatalf("%s: %v", t, err)
	}
}

// zero returns the zero value of a scalar, list or map, or of a pointer to one, and nil for other types.
func zero(t reflect.Type) any {
	switch notation := typeOf(t); notation[0] {
	case '*':
		return []any{}
	case '%':
		return map[string]any{}
	case 's', 'B':
		if isScalar(notation) {
			return ""
		}
	case 'b':
		if isScalar(notation) {
			return false
		}
	case 'i', 'l', 'd':
		if isScalar(notation) {
			return 0
		}
	}
	return nil
}
