package tutorial

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// SetupWebhooks serves the webhooks of both versions.
func SetupWebhooks(manager ctrl.Manager) error {
	err := ctrl.NewWebhookManagedBy(manager, &CronJob{}).
		WithDefaulter(defaulter{}).WithValidator(validator{}).Complete()
	if err != nil {
		return err
	}
	return ctrl.NewWebhookManagedBy(manager, &CronJobV2{}).Complete()
}

type defaulter struct{}

// Default sets what a CronJob does not say.
func (defaulter) Default(_ context.Context, job *CronJob) error {
	if job.Spec.ConcurrencyPolicy == "" {
		job.Spec.ConcurrencyPolicy = Allow
	}
	if job.Spec.Suspend == nil {
		job.Spec.Suspend = ptr.To(false)
	}
	if job.Spec.SuccessfulJobsHistoryLimit == nil {
		job.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](3)
	}
	if job.Spec.FailedJobsHistoryLimit == nil {
		job.Spec.FailedJobsHistoryLimit = ptr.To[int32](1)
	}
	return nil
}

type validator struct{}

// maxNameLength leaves room for the time in the names of the Jobs.
const maxNameLength = 52

func validate(job *CronJob) error {
	var errs field.ErrorList
	if len(job.Name) > maxNameLength {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), job.Name, "must be no more than 52 characters"))
	}
	if _, err := fields(job.Spec.Schedule); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "schedule"), job.Spec.Schedule, err.Error()))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(V1.WithKind("CronJob").GroupKind(), job.Name, errs)
}

// ValidateCreate validates a new CronJob.
func (validator) ValidateCreate(_ context.Context, job *CronJob) (admission.Warnings, error) {
	var warnings admission.Warnings
	if job.Spec.ConcurrencyPolicy == Replace {
		warnings = append(warnings, "Replace ends Jobs that run")
	}
	return warnings, validate(job)
}

// ValidateUpdate validates a changed CronJob.
func (validator) ValidateUpdate(_ context.Context, _, job *CronJob) (admission.Warnings, error) {
	return nil, validate(job)
}

// ValidateDelete allows every deletion.
func (validator) ValidateDelete(context.Context, *CronJob) (admission.Warnings, error) {
	return nil, nil
}

// Hub makes v1 the version that others are converted to.
func (*CronJob) Hub() {}

// ConvertTo converts v2 to v1.
func (in *CronJobV2) ConvertTo(hub conversion.Hub) error {
	out := hub.(*CronJob)
	out.ObjectMeta = in.ObjectMeta
	out.Spec.CronJobSpec = in.Spec.CronJobSpec
	out.Status = in.Status
	s := in.Spec.Schedule
	words := []string{s.Minute, s.Hour, s.DayOfMonth, s.Month, s.DayOfWeek}
	for index, word := range words {
		if word == "" {
			words[index] = "*"
		}
	}
	out.Spec.Schedule = strings.Join(words, " ")
	return nil
}

// ConvertFrom converts v1 to v2.
func (in *CronJobV2) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*CronJob)
	in.ObjectMeta = from.ObjectMeta
	in.Spec.CronJobSpec = from.Spec.CronJobSpec
	in.Status = from.Status
	words, err := fields(from.Spec.Schedule)
	if err != nil {
		return err
	}
	for index := range words {
		if words[index] == "*" {
			words[index] = ""
		}
	}
	in.Spec.Schedule = Schedule{words[0], words[1], words[2], words[3], words[4]}
	return nil
}
