package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// policyFiles are kube-apiserver's default roles and bindings, in the order in which it creates them.
var policyFiles = []string{
	"cluster-roles.yaml", "controller-roles.yaml",
	"cluster-role-bindings.yaml", "controller-role-bindings.yaml",
	"namespace-roles.yaml", "namespace-role-bindings.yaml",
}

// printPolicy prints the objects of the files in directory, one JSON object in a line.
func printPolicy(directory string) {
	for _, name := range policyFiles {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			log.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := yaml.Unmarshal(content, &list); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		if len(list.Items) == 0 {
			log.Fatalf("%s has no objects", name)
		}
		for _, item := range list.Items {
			// An aggregated role has no rules of its own.
			if item["rules"] == nil {
				delete(item, "rules")
			}
			line, err := json.Marshal(item)
			if err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			fmt.Println(string(line))
		}
	}
}
