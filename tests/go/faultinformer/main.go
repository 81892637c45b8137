// Command faultinformer runs a shared informer of client-go for config maps while the server has faults, and writes each
// notification as a line of JSON. When its standard input ends it writes the content of its store, and ends.
//
// Usage: faultinformer URL NAMESPACE
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// object is a config map as the history of the test has it.
type object struct {
	Key      string  `json:"key"`
	Revision uint64  `json:"revision"`
	Content  content `json:"content"`
}

type content struct {
	Value  uint64            `json:"value"`
	Labels map[string]string `json:"labels"`
}

// line is a line of the output. A line has one of these.
type line struct {
	// Listed is true for a request of all objects: a list, or a watch that begins with initial events.
	Listed  bool     `json:"listed,omitempty"`
	Added   *object  `json:"added,omitempty"`
	Updated *object  `json:"updated,omitempty"`
	Deleted *object  `json:"deleted,omitempty"`
	Unknown *object  `json:"unknown,omitempty"`
	Store   []object `json:"store,omitempty"`
}

// output writes lines.
type output struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func (o *output) write(l line) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if err := o.encoder.Encode(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func convert(value any) *object {
	configMap := value.(*corev1.ConfigMap)
	revision, err := strconv.ParseUint(configMap.ResourceVersion, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// An object without a value is not one of the test's.
	number, _ := strconv.ParseUint(configMap.Data["value"], 10, 64)
	labels := configMap.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return &object{
		Key:      "configmaps/" + configMap.Namespace + "/" + configMap.Name,
		Revision: revision,
		Content:  content{Value: number, Labels: labels},
	}
}

// listRecorder records the requests of all objects that the server accepts.
type listRecorder struct {
	next   http.RoundTripper
	output *output
}

func (r *listRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	query := request.URL.Query()
	isWatch := query.Get("watch") == "true" || query.Get("watch") == "1"
	isList := !isWatch || query.Get("sendInitialEvents") == "true"
	if err == nil && response.StatusCode == http.StatusOK && isList && query.Get("continue") == "" {
		r.output.write(line{Listed: true})
	}
	return response, err
}

func run(url, namespace string) error {
	out := &output{encoder: json.NewEncoder(os.Stdout)}
	config := &rest.Config{Host: url}
	config.ContentType = runtime.ContentTypeProtobuf
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &listRecorder{next: next, output: out}
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(added any) { out.write(line{Added: convert(added)}) },
		UpdateFunc: func(_, updated any) { out.write(line{Updated: convert(updated)}) },
		DeleteFunc: func(deleted any) {
			if unknown, ok := deleted.(cache.DeletedFinalStateUnknown); ok {
				out.write(line{Unknown: convert(unknown.Obj)})
				return
			}
			out.write(line{Deleted: convert(deleted)})
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory.Start(ctx.Done())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	store := []object{}
	for _, value := range informer.GetStore().List() {
		store = append(store, *convert(value))
	}
	out.write(line{Store: store})
	return nil
}

func main() {
	if len(os.Args) != 3 || !strings.HasPrefix(os.Args[1], "http") {
		fmt.Fprintln(os.Stderr, "usage: faultinformer URL NAMESPACE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
