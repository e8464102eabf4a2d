// Package admission is the chain of plugins that may change (Mutator) or refuse
// (Validator) what is about to be written, and that may charge for it (Claimer):
// after authorization, before storage. A folder below it holds each plugin;
// package app has the table of all of them, in their fixed order.
//
// A Request goes through the phases of the chain in this order:
//
//	Mutate    in order; a second time, when a plugin asked for it (AskAgain)
//	          for what came of later changes
//	Validate  in order, on the object as it will be stored
//	Claim     in order; what was taken is kept or given back by what becomes
//	          of the write, and taken anew when the write is tried again
//
// Whoever writes calls the chain with the object in its served form.
package admission
