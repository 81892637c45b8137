package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The discovery documents of stable versions, which are those that a server serves by default.
var stable = regexp.MustCompile(`^apis?__(.*__)?v[0-9]+\.json$`)

// servedKinds returns the kinds of the resources and subresources in the discovery documents of a directory.
func servedKinds(directory string) []schema.GroupVersionKind {
	files, err := os.ReadDir(directory)
	if err != nil {
		log.Fatal(err)
	}
	var kinds []schema.GroupVersionKind
	for _, file := range files {
		if !stable.MatchString(file.Name()) {
			continue
		}
		body, err := os.ReadFile(filepath.Join(directory, file.Name()))
		if err != nil {
			log.Fatal(err)
		}
		var list meta.APIResourceList
		if err := json.Unmarshal(body, &list); err != nil {
			log.Fatalf("%s: %v", file.Name(), err)
		}
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			log.Fatalf("%s: %v", file.Name(), err)
		}
		for _, resource := range list.APIResources {
			kind := version.WithKind(resource.Kind)
			if resource.Version != "" {
				kind.Group, kind.Version = resource.Group, resource.Version
			}
			// The options of pods/exec and similar subresources are query parameters.
			if !strings.HasSuffix(kind.Kind, "Options") && !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	if len(kinds) == 0 {
		log.Fatalf("%s has no discovery documents of stable versions", directory)
	}
	return kinds
}

// printKinds prints the kinds by group and version in the order of their packages.
func printKinds(kinds map[schema.GroupVersionKind]reflect.Type) {
	byPackage := map[string][]string{}
	versions := map[string]string{}
	for kind, t := range kinds {
		name := messageName(t)
		location := name[:strings.LastIndex(name, ".")]
		byPackage[location] = append(byPackage[location], kind.Kind)
		versions[location] = kind.GroupVersion().String()
	}
	fmt.Println("kinds! {")
	for _, location := range sortedKeys(byPackage) {
		names := byPackage[location]
		slices.Sort(names)
		word, version, _ := strings.Cut(location, ".")
		start := fmt.Sprintf("    %q %s %s [", versions[location], word, version)
		if all := start + strings.Join(names, " ") + "]"; len(all) <= width {
			fmt.Println(all)
			continue
		}
		fmt.Println(start)
		line := "       "
		for _, name := range names {
			if len(line)+1+len(name) > width {
				fmt.Println(line)
				line = "       "
			}
			line += " " + name
		}
		fmt.Printf("%s\n    ]\n", line)
	}
	fmt.Println("}")
}

// The length of the longest line.
const width = 100
