package check

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"binnacle/e2e/robustness/history"
)

// linearizableTimeout bounds the search for an order of the operations on one object.
const linearizableTimeout = time.Minute

// checkLinearizability searches for an order of the operations on each object that explains all
// responses. A list of the newest state counts as a read of each object that it could return.
func checkLinearizability(recorded *history.History, found *report) {
	byKey := map[string][]porcupine.Operation{}
	add := func(op history.Operation) {
		o := porcupine.Operation{ClientId: op.Client, Input: op, Call: int64(op.Start), Return: int64(op.End)}
		if op.Outcome == history.Unknown {
			o.Return = math.MaxInt64
		}
		byKey[op.Key] = append(byKey[op.Key], o)
	}
	for _, op := range informativeOperations(recorded) {
		add(op)
	}
	clients := 0
	for _, op := range recorded.Operations {
		clients = max(clients, op.Client+1)
	}
	for _, op := range objectReads(recorded, clients) {
		if byKey[op.Key] != nil {
			add(op)
		}
	}
	model := objectModel()
	for key, ops := range byKey {
		switch porcupine.CheckOperationsTimeout(model, ops, linearizableTimeout) {
		case porcupine.Illegal:
			found.add(key, 0, "no order explains the responses to its %d operations:\n%s", len(ops), formatOperations(ops))
		case porcupine.Unknown:
			found.add(key, 0, "no order of its %d operations was found within %s", len(ops), linearizableTimeout)
		}
	}
}

// informativeOperations leaves out operations without information: reads without a response, and
// writes without a response that never took effect. The model allows such writes, but leaving them
// out saves time.
func informativeOperations(recorded *history.History) []history.Operation {
	marks := recorded.ChangeLog.Marks()
	var ops []history.Operation
	for _, op := range recorded.Operations {
		if op.Outcome == history.Unknown {
			if _, stored := marks[op.Value]; op.Verb == history.Get || op.Verb != history.Delete && !stored {
				continue
			}
		}
		if op.Outcome == history.Conflict && op.Expected == "" && op.Verb != history.Create {
			continue // the server gave up after repeated conflicts, without effect
		}
		ops = append(ops, op)
	}
	return ops
}

// objectReads converts lists of the newest state into reads of single objects.
func objectReads(recorded *history.History, client int) []history.Operation {
	keys := map[string]bool{}
	for _, op := range recorded.Operations {
		keys[op.Key] = true
	}
	var ops []history.Operation
	for _, read := range recorded.Reads {
		if read.Kind != history.Newest {
			continue
		}
		client++
		shown := map[string]history.Version{}
		for _, version := range read.Items {
			shown[version.Key] = version
		}
		everything := read.Selection
		everything.Color = ""
		for key := range keys {
			if !everything.Matches(history.Version{Key: key}) {
				continue
			}
			version, exists := shown[key]
			if !exists && read.Selection.Color != "" {
				continue // it may exist in another color
			}
			op := history.Operation{
				Client:  client,
				Verb:    history.Get,
				Key:     key,
				Value:   version.Value,
				Start:   read.Start,
				End:     read.End,
				Outcome: history.Done,
			}
			if !exists {
				op.Outcome = history.NotFound
			}
			ops = append(ops, op)
		}
	}
	return ops
}

// objectModel is the model of one object. Its state is the mark of the stored version, or "" if the
// object does not exist.
func objectModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{""} },
		Step:  func(state, input, _ any) []any { return nextStates(state.(string), input.(history.Operation)) },
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, _ any) string {
			return formatOperation(input.(history.Operation))
		},
	}
	return model.ToModel()
}

// nextStates returns the possible states after an operation, or none if its response is impossible.
func nextStates(state string, op history.Operation) []any {
	next, want := apply(state, op)
	switch {
	case op.Outcome == history.Unknown && next != state:
		return []any{next, state}
	case op.Outcome == history.Unknown:
		return []any{state}
	case state == "" && op.Verb == history.Delete && (op.Outcome == history.Done ||
		op.Expected != "" && op.Outcome == history.Conflict):
		// A deletion marks a pod before it removes it. A second deletion in between succeeds, or
		// conflicts if it is conditional.
		return []any{state}
	case op.Outcome != want:
		return nil
	case op.Verb == history.Get && op.Outcome == history.Done && op.Value != state:
		return nil
	}
	return []any{next}
}

// apply returns the state after an operation that the server executes at once, and the response.
func apply(state string, op history.Operation) (next string, response history.Outcome) {
	switch {
	case op.Verb == history.Create && state != "":
		return state, history.Exists
	case op.Verb == history.Create:
		return op.Value, history.Done
	case state == "" && op.Verb == history.Update && op.Expected != "":
		// The body carries the uid of the version that it replaces.
		return state, history.Conflict
	case state == "":
		return state, history.NotFound
	case op.Verb == history.Get:
		return state, history.Done
	case op.Expected != "" && op.Expected != state:
		return state, history.Conflict
	case op.Verb == history.Delete:
		return "", history.Done
	}
	return op.Value, history.Done
}

// formatOperation describes an operation.
func formatOperation(op history.Operation) string {
	return fmt.Sprintf("client %d, replica %d: %s %s if %q: %s (%s, revision %d) %s", op.Client, op.Replica, op.Verb,
		op.Value, op.Expected, op.Outcome,
		op.Key, op.Revision, op.Error)
}

// formatOperations describes operations, one per line.
func formatOperations(ops []porcupine.Operation) string {
	var b strings.Builder
	for _, o := range ops {
		op := o.Input.(history.Operation)
		fmt.Fprintf(&b, "  %s – %s %s\n", op.Start, op.End, formatOperation(op))
	}
	return b.String()
}
