package tutorial

import (
	"context"
	"fmt"
	"sort"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const (
	// ownerKey is the index of Jobs by the name of the CronJob that controls them.
	ownerKey = ".metadata.controller"
	// scheduledAt is the annotation of a Job with the time at which it was due.
	scheduledAt = Group + "/scheduled-at"
)

// Reconciler makes the Jobs of CronJobs.
type Reconciler struct {
	client.Client
	// Now returns the time. Tests set it.
	Now func() time.Time
}

// SetupWithManager adds the controller and its index.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	index := func(object client.Object) []string {
		owner := metav1.GetControllerOf(object)
		if owner == nil || owner.APIVersion != V1.String() || owner.Kind != "CronJob" {
			return nil
		}
		return []string{owner.Name}
	}
	indexer := manager.GetFieldIndexer()
	if err := indexer.IndexField(context.Background(), &batchv1.Job{}, ownerKey, index); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).For(&CronJob{}).Owns(&batchv1.Job{}).Named("cronjob").
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).Complete(r)
}

// jobs are the Jobs of a CronJob, oldest first.
type jobs struct {
	active, succeeded, failed []*batchv1.Job
	lastScheduled             *time.Time
}

// Reconcile makes the Job that is due, ends or deletes Jobs, and sets the status.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var cronJob CronJob
	if err := r.Get(ctx, request.NamespacedName, &cronJob); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	found, err := r.list(ctx, &cronJob)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.setStatus(ctx, &cronJob, found); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.prune(ctx, found.succeeded, cronJob.Spec.SuccessfulJobsHistoryLimit); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.prune(ctx, found.failed, cronJob.Spec.FailedJobsHistoryLimit); err != nil {
		return ctrl.Result{}, err
	}
	if ptr.Deref(cronJob.Spec.Suspend, false) {
		return ctrl.Result{}, nil
	}
	return r.run(ctx, &cronJob, found)
}

func (r *Reconciler) list(ctx context.Context, cronJob *CronJob) (jobs, error) {
	var all batchv1.JobList
	err := r.List(ctx, &all, client.InNamespace(cronJob.Namespace), client.MatchingFields{ownerKey: cronJob.Name})
	if err != nil {
		return jobs{}, fmt.Errorf("list the jobs: %w", err)
	}
	items := all.Items
	sort.Slice(items, func(i, j int) bool { return items[i].Name < items[j].Name })
	var found jobs
	for index := range items {
		job := &items[index]
		switch finished(job) {
		case batchv1.JobComplete:
			found.succeeded = append(found.succeeded, job)
		case batchv1.JobFailed:
			found.failed = append(found.failed, job)
		default:
			found.active = append(found.active, job)
		}
		due, err := time.Parse(time.RFC3339, job.Annotations[scheduledAt])
		if err == nil && (found.lastScheduled == nil || found.lastScheduled.Before(due)) {
			found.lastScheduled = &due
		}
	}
	return found, nil
}

// finished returns the condition by which a Job has ended, or nothing.
func finished(job *batchv1.Job) batchv1.JobConditionType {
	for _, condition := range job.Status.Conditions {
		ends := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed
		if ends && condition.Status == corev1.ConditionTrue {
			return condition.Type
		}
	}
	return ""
}

func (r *Reconciler) setStatus(ctx context.Context, cronJob *CronJob, found jobs) error {
	// The time stays when its Job is deleted, or the Job would be made again.
	if found.lastScheduled != nil {
		cronJob.Status.LastScheduleTime = &metav1.Time{Time: *found.lastScheduled}
	}
	cronJob.Status.Active = nil
	for _, job := range found.active {
		active, err := reference.GetReference(r.Scheme(), job)
		if err != nil {
			return fmt.Errorf("refer to the job %s: %w", job.Name, err)
		}
		cronJob.Status.Active = append(cronJob.Status.Active, *active)
	}
	return r.Status().Update(ctx, cronJob)
}

// prune deletes the oldest of finished so that limit remain.
func (r *Reconciler) prune(ctx context.Context, finished []*batchv1.Job, limit *int32) error {
	if limit == nil {
		return nil
	}
	for index := 0; index < len(finished)-int(*limit); index++ {
		err := r.Delete(ctx, finished[index], client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete an old job: %w", err)
		}
	}
	return nil
}

// run makes the Job that is due, if any, and says when the next one is.
func (r *Reconciler) run(ctx context.Context, cronJob *CronJob, found jobs) (ctrl.Result, error) {
	now := r.Now()
	earliest := cronJob.CreationTimestamp.Time
	if cronJob.Status.LastScheduleTime != nil {
		earliest = cronJob.Status.LastScheduleTime.Time
	}
	due, err := next(cronJob.Spec.Schedule, earliest)
	if err != nil {
		return ctrl.Result{}, err
	}
	following, err := next(cronJob.Spec.Schedule, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	later := ctrl.Result{RequeueAfter: following.Sub(now)}
	if due.After(now) {
		return later, nil
	}
	// Of several missed runs only the last is made.
	for {
		another, err := next(cronJob.Spec.Schedule, due)
		if err != nil || another.After(now) {
			break
		}
		due = another
	}
	if len(found.active) > 0 {
		switch cronJob.Spec.ConcurrencyPolicy {
		case Forbid:
			return later, nil
		case Replace:
			if err := r.prune(ctx, found.active, ptr.To[int32](0)); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	job, err := r.construct(cronJob, due)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Create(ctx, job); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, fmt.Errorf("create the job: %w", err)
	}
	return later, nil
}

func (r *Reconciler) construct(cronJob *CronJob, due time.Time) (*batchv1.Job, error) {
	template := cronJob.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	// The same run has the same name, so that it is not made twice.
	job.Name = fmt.Sprintf("%s-%d", cronJob.Name, due.Unix())
	job.Namespace = cronJob.Namespace
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[scheduledAt] = due.Format(time.RFC3339)
	return job, ctrl.SetControllerReference(cronJob, job, r.Scheme())
}
