package tutorial

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// fields returns the five fields of a schedule.
func fields(schedule string) ([5]string, error) {
	words := strings.Fields(schedule)
	if len(words) != 5 {
		return [5]string{}, fmt.Errorf("expected exactly 5 fields, found %d: [%s]", len(words), schedule)
	}
	for _, word := range words {
		if word == "*" {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimPrefix(word, "*/")); err != nil || n < 0 {
			return [5]string{}, fmt.Errorf("%q is neither *, */N nor a number", word)
		}
	}
	return [5]string(words), nil
}

func matches(field string, value int) bool {
	if field == "*" {
		return true
	}
	step, isStep := strings.CutPrefix(field, "*/")
	n, err := strconv.Atoi(step)
	if err != nil {
		return false
	}
	if isStep {
		return n > 0 && value%n == 0
	}
	return value == n
}

// next returns the first time after t at which schedule is due, at most a year ahead.
func next(schedule string, t time.Time) (time.Time, error) {
	f, err := fields(schedule)
	if err != nil {
		return time.Time{}, err
	}
	end := t.AddDate(1, 0, 0)
	for due := t.Truncate(time.Minute).Add(time.Minute); due.Before(end); due = due.Add(time.Minute) {
		values := [5]int{due.Minute(), due.Hour(), due.Day(), int(due.Month()), int(due.Weekday())}
		all := true
		for index, field := range f {
			all = all && matches(field, values[index])
		}
		if all {
			return due, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not due within a year", schedule)
}
