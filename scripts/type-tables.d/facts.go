package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
)

// mark is a line `+name=value` of a comment.
type mark struct{ name, value string }

// source is what the source of a package says besides types.
type source struct {
	// The marks of types, and of fields by Type.Field.
	marks     map[string][]mark
	constants map[string]string
}

var (
	sources  = map[string]*source{}
	markLine = regexp.MustCompile(`^\+(\w+)=(.*)$`)
)

// sourceOf returns the marks and constants of a package.
func sourceOf(path string) *source {
	if sources[path] != nil {
		return sources[path]
	}
	directory, err := exec.Command("go", "list", "-find", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		log.Fatalf("go list %s: %v", path, err)
	}
	noTests := func(file fs.FileInfo) bool { return !strings.HasSuffix(file.Name(), "_test.go") }
	parsed, err := parser.ParseDir(token.NewFileSet(), strings.TrimSpace(string(directory)), noTests, parser.ParseComments)
	if err != nil {
		log.Fatal(err)
	}
	found := &source{map[string][]mark{}, map[string]string{}}
	sources[path] = found
	for _, of := range parsed {
		for _, file := range of.Files {
			for _, declaration := range file.Decls {
				if general, ok := declaration.(*ast.GenDecl); ok {
					found.add(general)
				}
			}
		}
	}
	return found
}

// add adds the types and constants of a declaration.
func (s *source) add(general *ast.GenDecl) {
	for _, spec := range general.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.marks[spec.Name.Name] = append(marksOf(general.Doc), marksOf(spec.Doc)...)
			if of, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range of.Fields.List {
					for _, name := range field.Names {
						s.marks[spec.Name.Name+"."+name.Name] = marksOf(field.Doc)
					}
				}
			}
		case *ast.ValueSpec:
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					if value, ok := spec.Values[i].(*ast.BasicLit); ok {
						s.constants[name.Name] = value.Value
					}
				}
			}
		}
	}
}

func marksOf(comment *ast.CommentGroup) []mark {
	var marks []mark
	for _, line := range strings.Split(comment.Text(), "\n") {
		if found := markLine.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			marks = append(marks, mark{found[1], found[2]})
		}
	}
	return marks
}

// values returns the values of all marks of a name.
func values(marks []mark, name string) []string {
	var all []string
	for _, mark := range marks {
		if mark.name == name {
			all = append(all, mark.value)
		}
	}
	return all
}

// has reports whether the last mark of a name has this value.
func has(marks []mark, name, value string) bool {
	all := values(marks, name)
	return len(all) > 0 && all[len(all)-1] == value
}

// factWords returns a line of facts.txt; nil for a message without facts.
func factWords(t reflect.Type) []string {
	of := sourceOf(t.PkgPath())
	var words []string
	if has(of.marks[t.Name()], "structType", "atomic") {
		words = append(words, "!atomic")
	}
	if embedded, ok := t.FieldByName("TypeMeta"); ok && embedded.Type == typeMeta {
		words = append(words, "!kind")
	}
	for _, field := range fields(t) {
		if facts := fieldFacts(of, of.marks[t.Name()+"."+field.Name], field); len(facts) > 0 {
			words = append(words, field.name+":"+strings.Join(facts, ";"))
		}
	}
	return words
}

// fieldFacts returns list type, merge rule and default of a field.
func fieldFacts(of *source, marks []mark, field field) []string {
	var facts []string
	switch {
	case has(marks, "listType", "map"):
		facts = append(facts, "map="+strings.Join(values(marks, "listMapKey"), ","))
	case has(marks, "listType", "set"):
		facts = append(facts, "set")
	}
	if has(marks, "structType", "atomic") || has(marks, "mapType", "atomic") {
		facts = append(facts, "atomic")
	}
	for _, strategy := range strings.Split(field.Tag.Get("patchStrategy"), ",") {
		key := field.Tag.Get("patchMergeKey")
		switch {
		case strategy == "":
		case strategy == "merge" && key != "":
			facts = append(facts, "merge="+key)
		default:
			facts = append(facts, strategy)
		}
	}
	for _, value := range values(marks, "default") {
		if name, ok := strings.CutPrefix(value, "ref("); ok {
			if value, ok = of.constants[strings.TrimSuffix(name, ")")]; !ok {
				log.Fatalf("%s: no constant %s", field.Name, name)
			}
		}
		facts = append(facts, "default="+value)
	}
	return facts
}
