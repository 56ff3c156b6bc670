// Package bootslot holds the values and the decisions of the rollback layer: releases, slots, marks, admission and
// trials. Everything here is a pure function of a record (Ledger) and of facts that are handed in; nothing reads a clock, a
// file or a network. The guard's loop acts on what these functions say, and the tests explore them exhaustively.
package bootslot
