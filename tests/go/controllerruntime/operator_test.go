package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"watchet/tests/controllerruntime/tutorial"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	add := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme))
	if add != nil {
		t.Fatal(add)
	}
	tutorial.AddToScheme(scheme)
	return scheme
}

// clock is a time that a test sets.
type clock struct {
	mutex sync.Mutex
	now   time.Time
}

func (c *clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.now
}

func (c *clock) set(now time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now = now
}

// startOperator starts an environment with the definitions and webhooks of the tutorial, and its operator.
func startOperator(t *testing.T, clock *clock) client.Client {
	t.Helper()
	scheme := newScheme(t)
	env := &envtest.Environment{
		Scheme:                scheme,
		CRDDirectoryPaths:     []string{"config/crd/bases"},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{"config/webhook"}},
	}
	config, c := start(t, env)
	hooks := &env.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciler := &tutorial.Reconciler{Client: manager.GetClient(), Now: clock.Now}
	if err := errors.Join(reconciler.SetupWithManager(manager), tutorial.SetupWebhooks(manager)); err != nil {
		t.Fatal(err)
	}
	startManager(t, manager)
	eventually(t, "the webhooks are served", func() error {
		return manager.GetWebhookServer().StartedChecker()(nil)
	})
	return c
}

func cronJob(name, schedule string) *tutorial.CronJob {
	container := corev1.Container{Name: "task", Image: "busybox"}
	job := &tutorial.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	job.Spec.Schedule = schedule
	job.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{container}, RestartPolicy: corev1.RestartPolicyOnFailure,
	}
	return job
}

func TestWebhooksOfTheTutorial(t *testing.T) {
	t.Parallel()
	c := startOperator(t, &clock{now: time.Now()})
	job := cronJob("defaulted", "*/5 * * * *")
	create(t, c, job)
	spec := job.Spec
	if spec.ConcurrencyPolicy != tutorial.Allow || spec.Suspend == nil || *spec.SuccessfulJobsHistoryLimit != 3 ||
		*spec.FailedJobsHistoryLimit != 1 {
		t.Errorf("the defaults are %v", spec)
	}

	wrong := cronJob(strings.Repeat("n", 53), "every day")
	err := c.Create(t.Context(), wrong)
	if !apierrors.IsInvalid(err) || len(err.(apierrors.APIStatus).Status().Details.Causes) != 2 {
		t.Errorf("a wrong cron job: %v", err)
	}
	changed := job.DeepCopy()
	changed.Spec.Schedule = "never"
	if err := c.Update(t.Context(), changed); !apierrors.IsInvalid(err) {
		t.Errorf("a wrong change: %v", err)
	}
}

func TestConversionOfTheTutorial(t *testing.T) {
	t.Parallel()
	c := startOperator(t, &clock{now: time.Now()})
	first := cronJob("first", "*/5 3 * * 1")
	create(t, c, first)
	var asV2 tutorial.CronJobV2
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(first), &asV2); err != nil {
		t.Fatal(err)
	}
	if expected := (tutorial.Schedule{Minute: "*/5", Hour: "3", DayOfWeek: "1"}); asV2.Spec.Schedule != expected {
		t.Errorf("the schedule became %v", asV2.Spec.Schedule)
	}

	second := &tutorial.CronJobV2{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}}
	second.Spec.CronJobSpec = first.Spec.CronJobSpec
	second.Spec.Schedule.Hour = "4"
	create(t, c, second)
	var list tutorial.CronJobList
	if err := c.List(t.Context(), &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.Items[1].Spec.Schedule != "* 4 * * *" {
		t.Errorf("the list in v1 is %v", list.Items)
	}
	// The names are validated in v1, whatever version is written.
	second.Spec.Schedule.Hour = "noon"
	if err := c.Update(t.Context(), second); !apierrors.IsInvalid(err) {
		t.Errorf("a wrong change in v2: %v", err)
	}
}

func TestTheCronJobOfTheTutorial(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Now()}
	c := startOperator(t, clock)
	owner := cronJob("report", "*/1 * * * *")
	owner.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](0)
	owner.Spec.ConcurrencyPolicy = tutorial.Forbid
	clock.set(time.Now().Add(90 * time.Second))
	create(t, c, owner)

	job := theJob(t, c, func(jobs []batchv1.Job) bool { return len(jobs) == 1 })
	controller := metav1.GetControllerOf(&job)
	if controller == nil || controller.UID != owner.UID || controller.APIVersion != tutorial.V1.String() {
		t.Errorf("the job's controller is %v", controller)
	}
	eventually(t, "the job is active", func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(owner), owner)
		if err == nil && (len(owner.Status.Active) != 1 || owner.Status.Active[0].UID != job.UID) {
			err = fmt.Errorf("the status is %v", owner.Status)
		}
		return err
	})

	complete(t, c, &job)
	theJob(t, c, func(jobs []batchv1.Job) bool { return len(jobs) == 0 })
	eventually(t, "no job is active", func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(owner), owner)
		if err == nil && len(owner.Status.Active) != 0 {
			err = fmt.Errorf("the status is %v", owner.Status)
		}
		return err
	})
}

// theJob waits for jobs that fit and returns the first.
func theJob(t *testing.T, c client.Client, fit func([]batchv1.Job) bool) batchv1.Job {
	t.Helper()
	var found batchv1.JobList
	eventually(t, "the jobs change", func() error {
		err := c.List(context.Background(), &found, client.InNamespace("default"))
		if err == nil && !fit(found.Items) {
			err = fmt.Errorf("there are %d jobs", len(found.Items))
		}
		return err
	})
	if len(found.Items) == 0 {
		return batchv1.Job{}
	}
	return found.Items[0]
}

// complete sets what the job controller sets when a Job has succeeded.
func complete(t *testing.T, c client.Client, job *batchv1.Job) {
	t.Helper()
	now := metav1.Now()
	condition := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
	}
	job.Status.StartTime, job.Status.CompletionTime = &now, &now
	job.Status.Succeeded = 1
	job.Status.Conditions = []batchv1.JobCondition{
		condition(batchv1.JobSuccessCriteriaMet), condition(batchv1.JobComplete),
	}
	if err := c.Status().Update(t.Context(), job); err != nil {
		t.Fatalf("complete the job: %v", err)
	}
}
