package tutorial

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func copied[T any](value *T) *T {
	if value == nil {
		return nil
	}
	result := *value
	return &result
}

func (in *CronJobSpec) deepCopy() CronJobSpec {
	out := *in
	out.Suspend = copied(in.Suspend)
	out.JobTemplate = *in.JobTemplate.DeepCopy()
	out.SuccessfulJobsHistoryLimit = copied(in.SuccessfulJobsHistoryLimit)
	out.FailedJobsHistoryLimit = copied(in.FailedJobsHistoryLimit)
	return out
}

func (in *CronJobStatus) deepCopy() CronJobStatus {
	out := *in
	out.Active = append([]corev1.ObjectReference(nil), in.Active...)
	out.LastScheduleTime = in.LastScheduleTime.DeepCopy()
	return out
}

// DeepCopy returns a copy that shares nothing.
func (in *CronJob) DeepCopy() *CronJob {
	out := *in
	out.ObjectMeta = *in.ObjectMeta.DeepCopy()
	out.Spec.CronJobSpec = in.Spec.CronJobSpec.deepCopy()
	out.Status = in.Status.deepCopy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (in *CronJob) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (in *CronJobList) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = nil
	for index := range in.Items {
		out.Items = append(out.Items, *in.Items[index].DeepCopy())
	}
	return &out
}

// DeepCopy returns a copy that shares nothing.
func (in *CronJobV2) DeepCopy() *CronJobV2 {
	out := *in
	out.ObjectMeta = *in.ObjectMeta.DeepCopy()
	out.Spec.CronJobSpec = in.Spec.CronJobSpec.deepCopy()
	out.Status = in.Status.deepCopy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (in *CronJobV2) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (in *CronJobV2List) DeepCopyObject() runtime.Object {
	out := *in
	out.Items = nil
	for index := range in.Items {
		out.Items = append(out.Items, *in.Items[index].DeepCopy())
	}
	return &out
}
