// Package tutorial is an operator of the shape of the kubebuilder book's CronJob: two versions of a custom
// resource, webhooks that default, validate and convert it, and a controller that makes Jobs.
package tutorial

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of CronJob.
const Group = "batch.tutorial.example.com"

// The versions of CronJob. V1 is stored.
var (
	V1 = schema.GroupVersion{Group: Group, Version: "v1"}
	V2 = schema.GroupVersion{Group: Group, Version: "v2"}
)

// ConcurrencyPolicy says what to do when a run is due and the one before has not ended.
type ConcurrencyPolicy string

// The policies.
const (
	Allow   ConcurrencyPolicy = "Allow"
	Forbid  ConcurrencyPolicy = "Forbid"
	Replace ConcurrencyPolicy = "Replace"
)

// CronJobSpec is the desired state, but for the schedule, which differs between the versions.
type CronJobSpec struct {
	ConcurrencyPolicy          ConcurrencyPolicy       `json:"concurrencyPolicy,omitempty"`
	Suspend                    *bool                   `json:"suspend,omitempty"`
	JobTemplate                batchv1.JobTemplateSpec `json:"jobTemplate"`
	SuccessfulJobsHistoryLimit *int32                  `json:"successfulJobsHistoryLimit,omitempty"`
	FailedJobsHistoryLimit     *int32                  `json:"failedJobsHistoryLimit,omitempty"`
}

// CronJobV1Spec has the schedule as five fields of text, as cron writes it.
type CronJobV1Spec struct {
	Schedule    string `json:"schedule"`
	CronJobSpec `json:",inline"`
}

// CronJobV2Spec has the schedule as an object.
type CronJobV2Spec struct {
	Schedule    Schedule `json:"schedule"`
	CronJobSpec `json:",inline"`
}

// Schedule is the five fields of a schedule. An empty one is "*".
type Schedule struct {
	Minute     string `json:"minute,omitempty"`
	Hour       string `json:"hour,omitempty"`
	DayOfMonth string `json:"dayOfMonth,omitempty"`
	Month      string `json:"month,omitempty"`
	DayOfWeek  string `json:"dayOfWeek,omitempty"`
}

// CronJobStatus is the observed state.
type CronJobStatus struct {
	Active           []corev1.ObjectReference `json:"active,omitempty"`
	LastScheduleTime *metav1.Time             `json:"lastScheduleTime,omitempty"`
}

// CronJob is version v1, the hub of the conversions.
type CronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CronJobV1Spec `json:"spec,omitempty"`
	Status CronJobStatus `json:"status,omitempty"`
}

// CronJobList is a list of version v1.
type CronJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CronJob `json:"items"`
}

// CronJobV2 is version v2.
type CronJobV2 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CronJobV2Spec `json:"spec,omitempty"`
	Status CronJobStatus `json:"status,omitempty"`
}

// CronJobV2List is a list of version v2.
type CronJobV2List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CronJobV2 `json:"items"`
}

// AddToScheme registers both versions.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(V1.WithKind("CronJob"), &CronJob{})
	scheme.AddKnownTypeWithName(V1.WithKind("CronJobList"), &CronJobList{})
	scheme.AddKnownTypeWithName(V2.WithKind("CronJob"), &CronJobV2{})
	scheme.AddKnownTypeWithName(V2.WithKind("CronJobList"), &CronJobV2List{})
	metav1.AddToGroupVersion(scheme, V1)
	metav1.AddToGroupVersion(scheme, V2)
}
