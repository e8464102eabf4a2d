package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	flowcontrolapply "k8s.io/client-go/applyconfigurations/flowcontrol/v1"

	"binnacle/services/apiserver/internal/loopback"
)

// danglingRetry is the pause after a write that failed.
const danglingRetry = time.Second

// Dangling tells in the status of every flow schema whether its priority level
// exists.
type Dangling struct {
	API    *loopback.Client
	Logger *slog.Logger
	Now    func() time.Time
	// Changed receives after changes of schemas and levels.
	Changed <-chan struct{}
}

// Run tells until ctx ends.
func (d *Dangling) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.Changed:
		case <-retry.C:
		}
		if err := d.tell(ctx); err != nil && ctx.Err() == nil {
			level := slog.LevelError
			if apierrors.IsTooManyRequests(err) { // what the store holds is still being loaded
				level = slog.LevelDebug
			}
			d.Logger.Log(ctx, level, "the status of flow schemas could not be written; trying again", "error", err)
			retry.Reset(danglingRetry)
		}
	}
}

func (d *Dangling) tell(ctx context.Context) error {
	live, err := liveFlows(ctx, d.API)
	if err != nil {
		return err
	}
	levels := map[string]bool{}
	for i := range live.Levels {
		levels[live.Levels[i].Name] = true
	}
	for i := range live.Schemas {
		s := &live.Schemas[i]
		name := s.Spec.PriorityLevelConfiguration.Name
		want := flowcontrolv1.FlowSchemaCondition{
			Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
			Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", name),
		}
		if !levels[name] {
			want.Status, want.Reason = flowcontrolv1.ConditionTrue, "NotFound"
			want.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", name)
		}
		if err := d.write(ctx, s, want); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// write applies the condition where it is not there yet.
func (d *Dangling) write(ctx context.Context, s *flowcontrolv1.FlowSchema, want flowcontrolv1.FlowSchemaCondition) error {
	since := metav1.NewTime(d.Now().UTC().Truncate(time.Second))
	for _, c := range s.Status.Conditions {
		if c.Type != want.Type {
			continue
		}
		if c.Status == want.Status {
			if c.Reason == want.Reason && c.Message == want.Message {
				return nil
			}
			since = c.LastTransitionTime
		}
	}
	condition := flowcontrolapply.FlowSchemaCondition().WithType(want.Type).WithStatus(want.Status).
		WithLastTransitionTime(since).WithReason(want.Reason).WithMessage(want.Message)
	wanted := flowcontrolapply.FlowSchema(s.Name).WithUID(s.UID).
		WithStatus(flowcontrolapply.FlowSchemaStatus().WithConditions(condition))
	return d.API.As(flowConsumer).Apply(ctx, flowPath("flowschemas").Named(s.Name).Under("status"), wanted)
}
